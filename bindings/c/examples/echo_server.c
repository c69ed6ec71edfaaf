/* Sends back what it reads, in a loop of its own: echo_server ADDRESS:PORT KEYFILE
 *
 * One thread, one poll(): the descriptor of the context is polled with those that the program has anyway. */
#include <noctule.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* A stream, and what was read from it and not written back yet. */
typedef struct echo {
    size_t held, at;
    char block[65536];
} echo;

static volatile sig_atomic_t is_over;

static void on_signal(int number) {
    (void)number;
    is_over = 1;
}

static void fail(const char *what) {
    fprintf(stderr, "echo_server: %s: %s\n", what, noctule_last_error());
    exit(1);
}

/* Goes on until nothing can be done now; an event follows when something can. */
static void move(noctule_flow flow, echo *e) {
    for (;;) {
        if (e->held == 0) {
            ptrdiff_t n = noctule_flow_read(flow, e->block, sizeof e->block);
            if (n == NOCTULE_ERROR_WOULD_BLOCK) return;
            if (n <= 0) break; /* The end, or an error: what was written is delivered. */
            e->held = (size_t)n;
            e->at = 0;
        }
        ptrdiff_t n = noctule_flow_write(flow, e->block + e->at, e->held);
        if (n == NOCTULE_ERROR_WOULD_BLOCK) return;
        if (n < 0) break;
        e->at += (size_t)n;
        e->held -= (size_t)n;
    }
    noctule_flow_free(flow);
    free(e);
}

static void handle(const noctule_event *event) {
    noctule_session session;
    noctule_flow flow;
    switch (event->kind) {
    case NOCTULE_EVENT_KIND_SESSION:
        while (noctule_endpoint_accept(event->endpoint, NULL, &session) == 0) {
            char key[NOCTULE_KEY_TEXT] = "";
            noctule_session_peer_key(session, key, sizeof key);
            printf("session with %s\n", key);
        }
        break;
    case NOCTULE_EVENT_KIND_FLOW:
        for (;;) {
            echo *e = calloc(1, sizeof *e);
            if (!e || noctule_session_accept(event->session, e, &flow) != 0) {
                free(e);
                break;
            }
            if (noctule_flow_kind(flow) != NOCTULE_KIND_STREAM) {
                noctule_flow_free(flow);
                free(e);
            }
        }
        break;
    case NOCTULE_EVENT_KIND_READABLE:
    case NOCTULE_EVENT_KIND_WRITABLE:
        move(event->flow, event->user);
        break;
    case NOCTULE_EVENT_KIND_CLOSED:
        noctule_session_free(event->session);
        break;
    default:
        break;
    }
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: echo_server ADDRESS:PORT KEYFILE\n");
        return 2;
    }
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    setvbuf(stdout, NULL, _IOLBF, 0);
    noctule_context context;
    noctule_identity identity;
    noctule_endpoint server;
    if (noctule_context_new(NOCTULE_ABI, 0, &context) != 0) fail("no context");
    if (noctule_identity_load(arguments[2], &identity) != 0) fail("no key");
    if (noctule_endpoint_bind(context, identity, arguments[1], NULL, NULL, &server) != 0) fail("cannot listen");
    char address[NOCTULE_ADDRESS_TEXT], key[NOCTULE_KEY_TEXT];
    noctule_endpoint_address(server, address, sizeof address);
    noctule_endpoint_public_key(server, key, sizeof key);
    printf("%s %s\n", address, key);
    struct pollfd descriptor = {.fd = noctule_context_fd(context), .events = POLLIN};
    while (!is_over) {
        poll(&descriptor, 1, 1000);
        noctule_event events[32];
        int n;
        while ((n = noctule_poll(context, events, 32, 0)) > 0) {
            for (int i = 0; i < n; i++) handle(&events[i]);
        }
        if (n < 0) fail("no events");
    }
    noctule_context_free_wait(context, 1000);
    noctule_identity_free(identity);
    return 0;
}
