/* Tests of the shape in which a thread of the library calls the program: `callbacks TEST`. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

enum { TOTAL = 10 * 1000 * 1000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int is_done;

static void done(void) {
    pthread_mutex_lock(&mutex);
    is_done = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void wait_until_done(void) {
    pthread_mutex_lock(&mutex);
    while (!is_done) pthread_cond_wait(&changed, &mutex);
    is_done = 0;
    pthread_mutex_unlock(&mutex);
}

/* One side of an echo: what it has to write yet, and what it has read. */
typedef struct side {
    int is_server, is_finished;
    size_t written, read, held, at;
    unsigned char block[32768];
} side;

static unsigned char byte_at(size_t i) { return (unsigned char)(i * 2654435761u >> 11); }

static void move_client(noctule_flow flow, side *s) {
    while (s->written < TOTAL) {
        unsigned char block[16384];
        size_t length = TOTAL - s->written < sizeof block ? TOTAL - s->written : sizeof block;
        for (size_t i = 0; i < length; i++) block[i] = byte_at(s->written + i);
        ptrdiff_t n = noctule_flow_write(flow, block, length);
        if (n == NOCTULE_ERROR_WOULD_BLOCK) break;
        CHECK(n > 0);
        s->written += (size_t)n;
    }
    if (s->written == TOTAL && !s->is_finished) {
        OK(noctule_flow_finish(flow));
        s->is_finished = 1;
    }
    for (;;) {
        ptrdiff_t n = noctule_flow_read(flow, s->block, sizeof s->block);
        if (n == NOCTULE_ERROR_WOULD_BLOCK) return;
        CHECK(n >= 0);
        for (ptrdiff_t i = 0; i < n; i++) CHECK(s->block[i] == byte_at(s->read + (size_t)i));
        s->read += (size_t)n;
        if (n == 0) {
            CHECK(s->read == TOTAL);
            /* Within its own callback. */
            OK(noctule_flow_free(flow));
            done();
            return;
        }
    }
}

static void move_server(noctule_flow flow, side *s) {
    for (;;) {
        if (s->held == 0) {
            ptrdiff_t n = noctule_flow_read(flow, s->block, sizeof s->block);
            if (n == NOCTULE_ERROR_WOULD_BLOCK) return;
            CHECK(n >= 0);
            if (n == 0) {
                OK(noctule_flow_free(flow));
                free(s);
                return;
            }
            s->held = (size_t)n, s->at = 0;
        }
        ptrdiff_t n = noctule_flow_write(flow, s->block + s->at, s->held);
        if (n == NOCTULE_ERROR_WOULD_BLOCK) return;
        CHECK(n > 0);
        s->at += (size_t)n, s->held -= (size_t)n;
    }
}

static side client_side;
static noctule_flow client_flow;

static void on_echo(const noctule_event *event, void *user) {
    CHECK(user == &client_side);
    noctule_session session;
    noctule_flow flow;
    switch (event->kind) {
    case NOCTULE_EVENT_KIND_SESSION:
        while (noctule_endpoint_accept(event->endpoint, NULL, &session) == 0) {}
        break;
    case NOCTULE_EVENT_KIND_FLOW:
        for (;;) {
            side *s = calloc(1, sizeof *s);
            s->is_server = 1;
            if (noctule_session_accept(event->session, s, &flow) != 0) {
                free(s);
                break;
            }
        }
        break;
    case NOCTULE_EVENT_KIND_CONNECTED:
        CHECK(event->error == 0);
        OK(noctule_session_open_stream(event->session, NULL, &client_side, &client_flow));
        move_client(client_flow, &client_side);
        break;
    case NOCTULE_EVENT_KIND_READABLE:
    case NOCTULE_EVENT_KIND_WRITABLE: {
        side *s = event->user;
        s->is_server ? move_server(event->flow, s) : move_client(event->flow, s);
        break;
    }
    default:
        break;
    }
}

static pair open_called_back(noctule_callback callback, void *user) {
    pair p = open_endpoints(NULL);
    OK(noctule_context_set_callback(p.context, callback, user));
    return p;
}

static void echo(void) {
    pair p = open_called_back(on_echo, &client_side);
    noctule_event event;
    REFUSED(NOCTULE_ERROR_MISUSE, "has a callback", noctule_poll(p.context, &event, 1, 0));
    REFUSED(NOCTULE_ERROR_MISUSE, "already", noctule_context_set_callback(p.context, on_echo, NULL));
    OK(noctule_endpoint_connect(p.client, p.address, p.key, NULL, &p.here));
    wait_until_done();
    close_pair(&p);
}

/* Callbacks that free what they are about, and everything. */
static atomic_int destroyed;
static noctule_session client_session;

static void on_destroy(const noctule_event *event, void *user) {
    noctule_context context = *(noctule_context *)user;
    noctule_session session;
    noctule_flow flow;
    REFUSED(NOCTULE_ERROR_MISUSE, "cannot wait for itself", noctule_context_wait_callbacks(context));
    switch (event->kind) {
    case NOCTULE_EVENT_KIND_SESSION:
        OK(noctule_endpoint_accept(event->endpoint, NULL, &session));
        break;
    case NOCTULE_EVENT_KIND_CONNECTED:
        CHECK(event->error == 0);
        client_session = event->session;
        OK(noctule_session_open_stream(event->session, NULL, NULL, &flow));
        CHECK(noctule_flow_write(flow, "hello", 5) == 5);
        OK(noctule_session_open_messages(event->session, NULL, NULL, &flow));
        OK(noctule_flow_send(flow, "hello", 5, NULL, NULL));
        break;
    case NOCTULE_EVENT_KIND_FLOW:
        OK(noctule_session_accept(event->session, NULL, &flow));
        break;
    case NOCTULE_EVENT_KIND_READABLE:
        /* The client's stream is over when the server has aborted. */
        if (event->session.id == client_session.id) break;
        atomic_fetch_add(&destroyed, 1);
        OK(noctule_session_abort(event->session, 3, "seen enough"));
        OK(noctule_session_free(event->session));
        OK(noctule_flow_free(event->flow));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "freed", noctule_flow_finish(event->flow));
        break;
    case NOCTULE_EVENT_KIND_CLOSED: {
        noctule_outcome outcome = {.size = sizeof outcome};
        OK(noctule_session_outcome(event->session, &outcome));
        CHECK(outcome.application_code == 3 && outcome.is_remote == 1);
        /* The endpoint of the session, the session, and the context with the thread that we are on. */
        OK(noctule_endpoint_free(event->endpoint));
        OK(noctule_session_free(event->session));
        OK(noctule_context_free_wait(context, 100));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "context", noctule_context_free(context));
        done();
        break;
    }
    default:
        break;
    }
}

static void destroy(void) {
    noctule_context context = {0};
    pair p = open_called_back(on_destroy, &context);
    context = p.context;
    OK(noctule_endpoint_connect(p.client, p.address, p.key, NULL, &p.here));
    wait_until_done();
    CHECK(atomic_load(&destroyed) == 1);
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_free(p.here));
}

/* Frees handles in one thread while callbacks about them run in another: what `user` points to goes only after wait_callbacks. */
static void on_marked(const noctule_event *event, void *user) {
    (void)user;
    if (event->user) ++*(volatile int *)event->user;
    if (event->kind == NOCTULE_EVENT_KIND_SESSION) {
        noctule_session session;
        while (noctule_endpoint_accept(event->endpoint, NULL, &session) == 0) {
            noctule_flow flow;
            /* The far end may have gone already. */
            if (noctule_session_open_uni(session, NULL, NULL, &flow) == 0) {
                noctule_flow_write(flow, "x", 1);
                OK(noctule_flow_free(flow));
            }
            OK(noctule_session_free(session));
        }
    }
}

static void threads(void) {
    pair p = open_called_back(on_marked, NULL);
    for (int i = 0; i < 200; i++) {
        int *marker = calloc(1, sizeof *marker);
        noctule_session session;
        OK(noctule_endpoint_connect(p.client, p.address, p.key, marker, &session));
        usleep((useconds_t)(i * 37 % 3000));
        OK(noctule_session_free(session));
        OK(noctule_context_wait_callbacks(p.context));
        memset(marker, 0xff, sizeof *marker);
        free(marker);
    }
    OK(noctule_context_free_wait(p.context, 1000));
}

/* While a callback blocks, the network goes on: the far end's data arrives in a context of its own. */
static void on_blocked(const noctule_event *event, void *user) {
    (void)user;
    if (event->kind == NOCTULE_EVENT_KIND_CONNECTED) {
        noctule_flow flow;
        OK(noctule_session_open_uni(event->session, NULL, NULL, &flow));
        CHECK(noctule_flow_write(flow, "hello", 5) == 5);
        wait_until_done();
    }
}

static void blocking(void) {
    pair p = open_endpoints(NULL);
    noctule_context other;
    noctule_endpoint client;
    OK(noctule_context_new(NOCTULE_ABI, 1, &other));
    OK(noctule_context_set_callback(other, on_blocked, NULL));
    OK(noctule_endpoint_client(other, (noctule_identity){0}, NULL, NULL, &client));
    OK(noctule_endpoint_connect(client, p.address, p.key, NULL, &p.here));
    p.there = accept_session(&p);
    noctule_flow flow = accept_flow(&p, p.there);
    char text[5];
    CHECK(read_some(&p, flow, text, 5) == 5 && memcmp(text, "hello", 5) == 0);
    done();
    OK(noctule_context_free_wait(other, 5000));
    close_pair(&p);
}

int main(int count, char **arguments) {
    static const struct { const char *name; void (*run)(void); } tests[] = {
        {"echo", echo}, {"destroy", destroy}, {"threads", threads}, {"blocking", blocking},
    };
    alarm(120); /* Ends what hangs. */
    for (size_t i = 0; count == 2 && i < sizeof tests / sizeof *tests; i++) {
        if (strcmp(tests[i].name, arguments[1]) == 0) {
            tests[i].run();
            return 0;
        }
    }
    fprintf(stderr, "usage: callbacks TEST\n");
    return 2;
}
