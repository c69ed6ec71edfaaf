/* Sends its standard input to an echo server and writes what comes back, by callbacks: echo_client HOST:PORT PUBLIC-KEY */
#include <noctule.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int is_done, status;

static struct {
    char block[65536];
    size_t held, at;
    int is_finished;
} out;

static void end(int with) {
    pthread_mutex_lock(&mutex);
    is_done = 1;
    status = with;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
}

static void fail(const char *what) {
    fprintf(stderr, "echo_client: %s: %s\n", what, noctule_last_error());
    exit(1);
}

static void send_on(noctule_flow flow) {
    while (!out.is_finished) {
        if (out.held == 0) {
            out.held = fread(out.block, 1, sizeof out.block, stdin);
            out.at = 0;
        }
        if (out.held == 0) {
            noctule_flow_finish(flow);
            out.is_finished = 1;
            return;
        }
        ptrdiff_t n = noctule_flow_write(flow, out.block + out.at, out.held);
        if (n == NOCTULE_ERROR_WOULD_BLOCK) return; /* WRITABLE follows. */
        if (n < 0) fail("cannot write");
        out.at += (size_t)n;
        out.held -= (size_t)n;
    }
}

static void receive(noctule_flow flow, noctule_session session) {
    char block[65536];
    for (;;) {
        ptrdiff_t n = noctule_flow_read(flow, block, sizeof block);
        if (n == NOCTULE_ERROR_WOULD_BLOCK) return; /* READABLE follows. */
        if (n < 0) fail("cannot read");
        if (n == 0) {
            noctule_session_close(session, 0, "done");
            return;
        }
        fwrite(block, 1, (size_t)n, stdout);
    }
}

/* Called for one event after another, on a thread of the library. */
static void on_event(const noctule_event *event, void *user) {
    (void)user;
    noctule_flow flow;
    switch (event->kind) {
    case NOCTULE_EVENT_KIND_CONNECTED:
        if (event->error) fail("cannot connect");
        if (noctule_session_open_stream(event->session, NULL, NULL, &flow) != 0) fail("no stream");
        send_on(flow);
        break;
    case NOCTULE_EVENT_KIND_WRITABLE:
        send_on(event->flow);
        break;
    case NOCTULE_EVENT_KIND_READABLE:
        receive(event->flow, event->session);
        break;
    case NOCTULE_EVENT_KIND_CLOSED: {
        noctule_outcome outcome = {.size = sizeof outcome};
        noctule_session_outcome(event->session, &outcome);
        if (!outcome.all_delivered) fprintf(stderr, "echo_client: %s\n", outcome.reason);
        end(!outcome.all_delivered);
        break;
    }
    default:
        break;
    }
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: echo_client HOST:PORT PUBLIC-KEY\n");
        return 2;
    }
    noctule_context context;
    noctule_endpoint client;
    noctule_session session;
    if (noctule_context_new(NOCTULE_ABI, 0, &context) != 0) fail("no context");
    if (noctule_context_set_callback(context, on_event, NULL) != 0) fail("no callbacks");
    if (noctule_endpoint_client(context, (noctule_identity){0}, NULL, NULL, &client) != 0) fail("no endpoint");
    if (noctule_endpoint_connect(client, arguments[1], arguments[2], NULL, &session) != 0) fail("cannot connect");
    pthread_mutex_lock(&mutex);
    while (!is_done) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    noctule_context_free_wait(context, 1000);
    return status;
}
