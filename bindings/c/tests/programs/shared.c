/* Tests of handles that several threads of the program share: `shared TEST`. Meant for ThreadSanitizer, too (./x sanitize). */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { THREADS = 4, EACH = 200 };

static pair p;
static noctule_flow out, in;
static atomic_int sent, received, waiting, refused, told;

static void start(pthread_t *threads, void *(*run)(void *), void *argument) {
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, run, argument) == 0);
}

static void join(pthread_t *threads) {
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

/* Threads that call one flow tell each other by trying: which of them gets an event does not matter. */
static void drain_events(void) {
    noctule_event events[16];
    CHECK(noctule_poll(p.context, events, 16, 1) >= 0);
}

static void *send_some(void *unused) {
    (void)unused;
    for (int i = 0; i < EACH;) {
        noctule_error error = noctule_flow_send(out, "message", 7, NULL, NULL);
        CHECK(error == 0 || error == NOCTULE_ERROR_WOULD_BLOCK);
        if (error == 0) atomic_fetch_add(&sent, 1), i++;
        else drain_events();
    }
    return NULL;
}

static void *receive_some(void *unused) {
    (void)unused;
    char buffer[16];
    size_t length;
    for (;;) {
        noctule_error error = noctule_flow_recv(in, buffer, sizeof buffer, &length, NULL);
        if (error == NOCTULE_ERROR_END) return NULL;
        CHECK(error == 0 || error == NOCTULE_ERROR_WOULD_BLOCK);
        if (error == 0) {
            CHECK(length == 7 && memcmp(buffer, "message", 7) == 0);
            atomic_fetch_add(&received, 1);
        } else drain_events();
    }
}

static void *look(void *unused) {
    (void)unused;
    while (atomic_load(&received) < THREADS * EACH) {
        noctule_session_stats session = {.size = sizeof session};
        noctule_flow_stats flow = {.size = sizeof flow};
        noctule_endpoint_stats endpoint = {.size = sizeof endpoint};
        char text[NOCTULE_ADDRESS_TEXT];
        OK(noctule_session_get_stats(p.here, &session));
        OK(noctule_flow_get_stats(out, 1, &flow));
        OK(noctule_endpoint_get_stats(p.server, &endpoint));
        OK(noctule_session_address(p.here, text, sizeof text));
        OK(noctule_flow_set_user(in, text));
        CHECK(noctule_flow_direction(out) == 2 && noctule_flow_kind(in) == NOCTULE_KIND_ORDERED);
        sched_yield();
    }
    return NULL;
}

/* Several threads send by one flow and receive by another, while others look at the figures: every message arrives once. */
static void flows(void) {
    pthread_t senders[THREADS], receivers[THREADS], lookers[THREADS];
    p = open_pair(NULL);
    OK(noctule_session_open_messages(p.here, NULL, NULL, &out));
    OK(noctule_flow_send(out, "message", 7, NULL, NULL));
    in = accept_flow(&p, p.there);
    start(senders, send_some, NULL);
    start(receivers, receive_some, NULL);
    start(lookers, look, NULL);
    join(senders);
    OK(noctule_flow_finish(out));
    join(receivers);
    join(lookers);
    CHECK(atomic_load(&received) == THREADS * EACH + 1);
    close_pair(&p);
}

/* What a thread is told when another closes what it uses. The other end may hear of its end first: a flow is then stopped, reset, or, gently closed, at its end. */
static int closed(ptrdiff_t n) {
    return n == NOCTULE_ERROR_CLOSED || n == NOCTULE_ERROR_BAD_HANDLE;
}

static void *poll_to_the_end(void *unused) {
    (void)unused;
    noctule_event event;
    atomic_fetch_add(&waiting, 1);
    int count;
    while ((count = noctule_poll(p.context, &event, 1, -1)) > 0) {}
    CHECK(closed(count));
    return NULL;
}

static void *write_to_the_end(void *unused) {
    (void)unused;
    static const char block[4096];
    ptrdiff_t n;
    atomic_fetch_add(&waiting, 1);
    do {
        n = noctule_flow_write(out, block, sizeof block);
        CHECK(n > 0 || n == NOCTULE_ERROR_WOULD_BLOCK || n == NOCTULE_ERROR_FLOW_STOPPED || closed(n));
        sched_yield();
    } while (n > 0 || n == NOCTULE_ERROR_WOULD_BLOCK);
    return NULL;
}

static void *read_to_the_end(void *unused) {
    (void)unused;
    char block[4096];
    ptrdiff_t n;
    atomic_fetch_add(&waiting, 1);
    do {
        n = noctule_flow_read(in, block, sizeof block);
        CHECK(n >= 0 || n == NOCTULE_ERROR_WOULD_BLOCK || n == NOCTULE_ERROR_FLOW_RESET || closed(n));
        sched_yield();
    } while (n > 0 || n == NOCTULE_ERROR_WOULD_BLOCK);
    return NULL;
}

/* A context, a session and its flows are freed while threads wait for events, write and read: each is told, and none hangs. */
static void closing(void) {
    for (int round = 0; round < 6; round++) {
        pthread_t pollers[THREADS], writers[THREADS], readers[THREADS];
        p = open_pair(NULL);
        OK(noctule_session_open_uni(p.here, NULL, NULL, &out));
        CHECK(noctule_flow_write(out, "x", 1) == 1);
        in = accept_flow(&p, p.there);
        atomic_store(&waiting, 0);
        start(pollers, poll_to_the_end, NULL);
        start(writers, write_to_the_end, NULL);
        start(readers, read_to_the_end, NULL);
        while (atomic_load(&waiting) < 3 * THREADS) sched_yield();
        usleep(2000);
        if (round % 3 == 1) OK(noctule_session_abort(p.here, 0, NULL));
        if (round % 3 == 2) {
            OK(noctule_flow_free(out));
            OK(noctule_flow_free(in));
            OK(noctule_session_free(p.there));
        }
        OK(round % 2 ? noctule_context_free(p.context) : noctule_context_free_wait(p.context, 10));
        join(pollers);
        join(writers);
        join(readers);
    }
}

static void *free_it(void *handle) {
    noctule_error error = noctule_session_free(*(noctule_session *)handle);
    CHECK(error == 0 || error == NOCTULE_ERROR_BAD_HANDLE);
    if (error) atomic_fetch_add(&refused, 1);
    noctule_identity identity;
    char key[NOCTULE_KEY_TEXT];
    for (int i = 0; i < EACH; i++) {
        OK(noctule_identity_generate(&identity));
        OK(noctule_identity_public_key(identity, key, sizeof key));
        OK(noctule_identity_free(identity));
    }
    return NULL;
}

/* Of several threads that free one handle, one does. */
static void freeing(void) {
    pthread_t threads[THREADS];
    p = open_pair(NULL);
    start(threads, free_it, &p.here);
    join(threads);
    CHECK(atomic_load(&refused) == THREADS - 1);
    close_pair(&p);
}

static void on_event(const noctule_event *event, void *user) {
    (void)user;
    atomic_fetch_add(&told, 1);
    noctule_session session;
    noctule_flow flow;
    char block[4096];
    switch (event->kind) {
    case NOCTULE_EVENT_KIND_SESSION:
        while (noctule_endpoint_accept(event->endpoint, NULL, &session) == 0) {}
        break;
    case NOCTULE_EVENT_KIND_FLOW:
        while (noctule_session_accept(event->session, NULL, &flow) == 0) {}
        break;
    case NOCTULE_EVENT_KIND_READABLE: {
        ptrdiff_t n;
        while ((n = noctule_flow_read(event->flow, block, sizeof block)) > 0) {}
        if (n == 0) noctule_flow_free(event->flow);
        break;
    }
    case NOCTULE_EVENT_KIND_CLOSED:
        noctule_session_free(event->session);
        break;
    }
}

static void *open_and_close(void *unused) {
    (void)unused;
    for (int i = 0; i < 20; i++) {
        noctule_session session;
        noctule_flow flow;
        char text[8];
        OK(noctule_endpoint_connect(p.client, p.address, p.key, NULL, &session));
        noctule_error error;
        while ((error = noctule_session_failure(session, text, sizeof text)) == NOCTULE_ERROR_NOT_CONNECTED) usleep(200);
        OK(error);
        OK(noctule_session_open_stream(session, NULL, NULL, &flow));
        CHECK(noctule_flow_write(flow, "hello", 5) == 5);
        OK(noctule_flow_free(flow));
        OK(noctule_session_free(session));
        OK(noctule_context_wait_callbacks(p.context));
    }
    return NULL;
}

/* Threads of the program open and free sessions while the library's thread calls back. */
static void callbacks(void) {
    pthread_t threads[THREADS];
    memset(&p, 0, sizeof p);
    OK(noctule_context_new(NOCTULE_ABI, 2, &p.context));
    OK(noctule_context_set_callback(p.context, on_event, NULL));
    noctule_endpoint_options options = {.size = sizeof options, .max_sessions_per_key = 1000};
    OK(noctule_endpoint_bind(p.context, (noctule_identity){0}, "127.0.0.1:0", &options, NULL, &p.server));
    OK(noctule_endpoint_client(p.context, (noctule_identity){0}, NULL, NULL, &p.client));
    OK(noctule_endpoint_address(p.server, p.address, sizeof p.address));
    OK(noctule_endpoint_public_key(p.server, p.key, sizeof p.key));
    start(threads, open_and_close, NULL);
    join(threads);
    OK(noctule_context_free_wait(p.context, 2000));
    CHECK(atomic_load(&told) > 0);
}

int main(int count, char **arguments) {
    static const struct { const char *name; void (*run)(void); } tests[] = {
        {"flows", flows}, {"closing", closing}, {"freeing", freeing}, {"callbacks", callbacks},
    };
    alarm(300); /* Ends what hangs. */
    for (size_t i = 0; count == 2 && i < sizeof tests / sizeof *tests; i++) {
        if (strcmp(tests[i].name, arguments[1]) == 0) {
            tests[i].run();
            return 0;
        }
    }
    fprintf(stderr, "usage: shared TEST\n");
    return 2;
}
