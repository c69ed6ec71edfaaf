/* Measures one flow between two contexts of this process over loopback: loopback SECONDS [BYTES of each message; without: a stream]
 *
 * The same as crates/net/examples/loopback.rs in Rust: 256 KiB are written at once, 1 MiB is read at once. */
#include <noctule.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { WRITE = 256 * 1024, READ = 1024 * 1024 };

static noctule_context here, there;
static noctule_endpoint server;
static size_t message;

static void check(int is_right, const char *what) {
    if (is_right) return;
    fprintf(stderr, "loopback: %s: %s\n", what, noctule_last_error());
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* CPU time of the process so far: user and system. */
static double cpu(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* Waits for one event of a context; others are of no use here. */
static noctule_event wait_for(noctule_context context, uint32_t kind) {
    noctule_event event = {0};
    do check(noctule_poll(context, &event, 1, -1) >= 0, "no events");
    while (event.kind != kind);
    check(event.error == 0, "failed");
    return event;
}

static void *receive(void *sum) {
    noctule_session session;
    noctule_flow flow;
    unsigned long long *bytes = sum;
    char *block = malloc(READ);
    check(block != NULL, "no memory");
    while (noctule_endpoint_accept(server, NULL, &session) != 0) wait_for(there, NOCTULE_EVENT_KIND_SESSION);
    while (noctule_session_accept(session, NULL, &flow) != 0) wait_for(there, NOCTULE_EVENT_KIND_FLOW);
    for (;;) {
        size_t length = 0;
        ptrdiff_t n = message ? noctule_flow_recv(flow, block, READ, &length, NULL) : noctule_flow_read(flow, block, READ);
        if (n == NOCTULE_ERROR_WOULD_BLOCK) wait_for(there, NOCTULE_EVENT_KIND_READABLE);
        else if (n == NOCTULE_ERROR_END || (n == 0 && !message)) break;
        else {
            check(n >= 0, "cannot read");
            *bytes += message ? length : (size_t)n;
        }
    }
    free(block);
    return NULL;
}

int main(int count, char **arguments) {
    double seconds = count > 1 ? atof(arguments[1]) : 5;
    message = count > 2 ? (size_t)atol(arguments[2]) : 0;
    noctule_endpoint client;
    noctule_session session;
    noctule_flow flow;
    noctule_identity none = {0};
    char address[NOCTULE_ADDRESS_TEXT], key[NOCTULE_KEY_TEXT], *block = malloc(WRITE);
    unsigned long long bytes = 0;
    pthread_t receiver;
    check(block && message <= WRITE, "a message has at most 256 KiB");
    memset(block, 0x5a, WRITE);
    check(noctule_context_new(NOCTULE_ABI, 1, &here) == 0 && noctule_context_new(NOCTULE_ABI, 1, &there) == 0, "no context");
    check(noctule_endpoint_bind(there, none, "127.0.0.1:0", NULL, NULL, &server) == 0, "cannot listen");
    check(noctule_endpoint_bind(here, none, "127.0.0.1:0", NULL, NULL, &client) == 0, "no endpoint");
    noctule_endpoint_address(server, address, sizeof address);
    noctule_endpoint_public_key(server, key, sizeof key);
    double start = now();
    check(pthread_create(&receiver, NULL, receive, &bytes) == 0, "no thread");
    check(noctule_endpoint_connect(client, address, key, NULL, &session) == 0, "cannot connect");
    wait_for(here, NOCTULE_EVENT_KIND_CONNECTED);
    check((message ? noctule_session_open_messages : noctule_session_open_uni)(session, NULL, NULL, &flow) == 0, "no flow");
    for (unsigned long long i = 0; i % 64 || now() < start + seconds; i++) {
        for (size_t at = 0; at < (message ? 1 : WRITE);) {
            ptrdiff_t n = message ? noctule_flow_send(flow, block, message, NULL, NULL) : noctule_flow_write(flow, block + at, WRITE - at);
            if (n == NOCTULE_ERROR_WOULD_BLOCK) {
                wait_for(here, NOCTULE_EVENT_KIND_WRITABLE);
                continue;
            }
            check(n >= 0, "cannot write");
            at += message ? 1 : (size_t)n;
        }
    }
    check(noctule_flow_finish(flow) == 0, "cannot finish");
    wait_for(here, NOCTULE_EVENT_KIND_FINISHED);
    pthread_join(receiver, NULL);
    double elapsed = now() - start;
    printf("%.3f Gbit/s (%.0f MB in %.2f s)", (double)bytes * 8e-9 / elapsed, (double)bytes * 1e-6, elapsed);
    if (message) printf(", %.0f messages/s", (double)bytes / (double)message / elapsed);
    printf(", CPU %.3f s per Gbit for both ends\n", cpu() / ((double)bytes * 8e-9));
    noctule_context_free_wait(here, 1000);
    noctule_context_free_wait(there, 1000);
    free(block);
    return 0;
}
