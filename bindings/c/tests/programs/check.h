/* What the test programs share: a check that says where it failed, and waiting for one event among others. */
#ifndef CHECK_H
#define CHECK_H

#include "noctule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__, #condition,           \
                    noctule_last_error());                                                                   \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* The call gives this code, and its words have this in them. */
#define REFUSED(code, words, call)                                                                           \
    do {                                                                                                     \
        long long got = (long long)(call);                                                                   \
        if (got != (code) || !strstr(noctule_last_error(), words)) {                                         \
            fprintf(stderr, "%s:%d: %s gives %lld, \"%s\", not %d with \"%s\"\n", __FILE__, __LINE__, #call,    \
                    got, noctule_last_error(), (int)(code), words);                                          \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* Not every program needs every one of these. */
#define SHARED __attribute__((unused)) static

#define OK(call) CHECK((call) == NOCTULE_ERROR_OK)

static noctule_event seen[4096];
static size_t seen_count;

static uint64_t subject(const noctule_event *event) {
    if (event->flow.id) return event->flow.id;
    return event->session.id ? event->session.id : event->endpoint.id;
}

/* Waits for an event of this kind about this handle; others are kept for later calls. */
SHARED noctule_event wait_for(noctule_context context, uint32_t kind, uint64_t handle) {
    for (;;) {
        for (size_t i = 0; i < seen_count; i++) {
            if (seen[i].kind == kind && subject(&seen[i]) == handle) {
                noctule_event event = seen[i];
                memmove(&seen[i], &seen[i + 1], (--seen_count - i) * sizeof *seen);
                return event;
            }
        }
        CHECK(seen_count < sizeof seen / sizeof *seen);
        int count = noctule_poll(context, &seen[seen_count], sizeof seen / sizeof *seen - seen_count, -1);
        CHECK(count >= 0);
        seen_count += (size_t)count;
    }
}

/* Two endpoints of one context, and a session between them. */
typedef struct pair {
    noctule_context context;
    noctule_endpoint server, client;
    noctule_session there, here;
    char address[NOCTULE_ADDRESS_TEXT], key[NOCTULE_KEY_TEXT];
} pair;

SHARED noctule_session accept_session(pair *p) {
    noctule_session session = {0};
    noctule_error error;
    while ((error = noctule_endpoint_accept(p->server, NULL, &session)) == NOCTULE_ERROR_WOULD_BLOCK)
        wait_for(p->context, NOCTULE_EVENT_KIND_SESSION, p->server.id);
    OK(error);
    return session;
}

SHARED noctule_flow accept_flow(pair *p, noctule_session session) {
    noctule_flow flow = {0};
    noctule_error error;
    while ((error = noctule_session_accept(session, NULL, &flow)) == NOCTULE_ERROR_WOULD_BLOCK)
        wait_for(p->context, NOCTULE_EVENT_KIND_FLOW, session.id);
    OK(error);
    return flow;
}

SHARED pair open_endpoints(const noctule_endpoint_options *options) {
    pair p;
    memset(&p, 0, sizeof p);
    OK(noctule_context_new(NOCTULE_ABI, 2, &p.context));
    OK(noctule_endpoint_bind(p.context, (noctule_identity){0}, "127.0.0.1:0", options, NULL, &p.server));
    OK(noctule_endpoint_client(p.context, (noctule_identity){0}, options, NULL, &p.client));
    OK(noctule_endpoint_address(p.server, p.address, sizeof p.address));
    OK(noctule_endpoint_public_key(p.server, p.key, sizeof p.key));
    return p;
}

SHARED pair open_pair(const noctule_endpoint_options *options) {
    pair p = open_endpoints(options);
    OK(noctule_endpoint_connect(p.client, p.address, p.key, NULL, &p.here));
    CHECK(wait_for(p.context, NOCTULE_EVENT_KIND_CONNECTED, p.here.id).error == 0);
    p.there = accept_session(&p);
    return p;
}

SHARED void close_pair(pair *p) {
    OK(noctule_context_free_wait(p->context, 20000));
}

/* Writes all, waiting for room; reads what comes meanwhile is the caller's matter. */
SHARED void write_all(pair *p, noctule_flow flow, const void *data, size_t length) {
    for (size_t at = 0; at < length;) {
        ptrdiff_t n = noctule_flow_write(flow, (const char *)data + at, length - at);
        if (n == NOCTULE_ERROR_WOULD_BLOCK) {
            wait_for(p->context, NOCTULE_EVENT_KIND_WRITABLE, flow.id);
            continue;
        }
        CHECK(n > 0);
        at += (size_t)n;
    }
}

SHARED ptrdiff_t read_some(pair *p, noctule_flow flow, void *buffer, size_t capacity) {
    ptrdiff_t n;
    while ((n = noctule_flow_read(flow, buffer, capacity)) == NOCTULE_ERROR_WOULD_BLOCK)
        wait_for(p->context, NOCTULE_EVENT_KIND_READABLE, flow.id);
    return n;
}

SHARED noctule_error receive(pair *p, noctule_flow flow, void *buffer, size_t capacity, size_t *length, uint64_t *number) {
    noctule_error error;
    while ((error = noctule_flow_recv(flow, buffer, capacity, length, number)) == NOCTULE_ERROR_WOULD_BLOCK)
        wait_for(p->context, NOCTULE_EVENT_KIND_READABLE, flow.id);
    return error;
}

#endif
