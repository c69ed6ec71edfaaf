/* Measures a stream between two hosts: what the receiver's program reads in each second.
 *
 * goodput ADDRESS:PORT KEY-FILE             receives; the key file is made by noctule keygen -o FILE
 * goodput HOST:PORT PUBLIC-KEY SECONDS      sends for so long */
#include <noctule.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCK = 1024 * 1024 };

static noctule_context context;
static char block[BLOCK];

static void check(int is_right, const char *what) {
    if (is_right) return;
    fprintf(stderr, "goodput: %s: %s\n", what, noctule_last_error());
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Waits for one event; others are of no use here. */
static void wait_for(uint32_t kind) {
    noctule_event event = {0};
    do check(noctule_poll(context, &event, 1, -1) >= 0, "no events");
    while (event.kind != kind);
    if (!event.error) return;
    fprintf(stderr, "goodput: %s\n", noctule_error_text(event.error));
    exit(1);
}

static void receive(const char *address, const char *file) {
    noctule_identity identity;
    noctule_endpoint server;
    noctule_session session;
    noctule_flow flow;
    check(noctule_identity_load(file, &identity) == 0, "no key");
    check(noctule_endpoint_bind(context, identity, address, NULL, NULL, &server) == 0, "cannot listen");
    while (noctule_endpoint_accept(server, NULL, &session) != 0) wait_for(NOCTULE_EVENT_KIND_SESSION);
    while (noctule_session_accept(session, NULL, &flow) != 0) wait_for(NOCTULE_EVENT_KIND_FLOW);
    double start = now(), second = start;
    double sum = 0, since = 0;
    for (;;) {
        ptrdiff_t n = noctule_flow_read(flow, block, BLOCK);
        if (n == 0) break;
        if (n == NOCTULE_ERROR_WOULD_BLOCK) wait_for(NOCTULE_EVENT_KIND_READABLE);
        else check(n > 0, "cannot read");
        if (n > 0) sum += (double)n, since += (double)n;
        if (now() < second + 1) continue;
        printf("%4.0f s %8.2f Mbit/s\n", now() - start, since * 8e-6 / (now() - second));
        fflush(stdout);
        second = now(), since = 0;
    }
    printf("%.2f Mbit/s in %.2f s\n", sum * 8e-6 / (now() - start), now() - start);
    check(noctule_context_free_wait(context, 5000) == 0, "cannot end");
}

static void send(const char *host, const char *key, double seconds) {
    noctule_endpoint client;
    noctule_session session;
    noctule_flow flow;
    check(noctule_endpoint_client(context, (noctule_identity){0}, NULL, NULL, &client) == 0, "no endpoint");
    check(noctule_endpoint_connect(client, host, key, NULL, &session) == 0, "cannot connect");
    wait_for(NOCTULE_EVENT_KIND_CONNECTED);
    check(noctule_session_open_uni(session, NULL, NULL, &flow) == 0, "no stream");
    double end = now() + seconds;
    while (now() < end) {
        ptrdiff_t n = noctule_flow_write(flow, block, BLOCK);
        if (n == NOCTULE_ERROR_WOULD_BLOCK) wait_for(NOCTULE_EVENT_KIND_WRITABLE);
        else check(n > 0, "cannot write");
    }
    check(noctule_flow_finish(flow) == 0, "cannot finish");
    wait_for(NOCTULE_EVENT_KIND_FINISHED);
    check(noctule_context_free_wait(context, 5000) == 0, "cannot end");
}

int main(int count, char **arguments) {
    if (count != 3 && count != 4) {
        fprintf(stderr, "usage: goodput ADDRESS:PORT KEY-FILE | goodput HOST:PORT PUBLIC-KEY SECONDS\n");
        return 2;
    }
    check(noctule_context_new(NOCTULE_ABI, 1, &context) == 0, "no context");
    if (count == 3) receive(arguments[1], arguments[2]);
    else send(arguments[1], arguments[2], atof(arguments[3]));
    return 0;
}
