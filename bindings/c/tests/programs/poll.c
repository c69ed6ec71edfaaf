/* Tests of the shape in which the program polls: `poll TEST`. */
#include "check.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

/* Ten megabytes there and back, on one stream, in one loop. */
static void echo(void) {
    enum { TOTAL = 10 * 1000 * 1000 };
    pair p = open_pair(NULL);
    noctule_flow out, back;
    OK(noctule_session_open_stream(p.here, NULL, NULL, &out));
    CHECK(noctule_flow_kind(out) == NOCTULE_KIND_STREAM && noctule_flow_direction(out) == 1);
    unsigned char *data = malloc(TOTAL), *got = malloc(TOTAL);
    CHECK(data && got);
    for (size_t i = 0; i < TOTAL; i++) data[i] = (unsigned char)(i * 2654435761u >> 13);
    write_all(&p, out, data, 1);
    back = accept_flow(&p, p.there);
    size_t written = 1, echoed = 0, held = 0, read = 0;
    int is_finished = 0, is_over = 0;
    static unsigned char block[65536];
    while (read < TOTAL) {
        int moved = 0;
        if (written < TOTAL) {
            ptrdiff_t n = noctule_flow_write(out, data + written, TOTAL - written);
            CHECK(n > 0 || n == NOCTULE_ERROR_WOULD_BLOCK);
            if (n > 0) written += (size_t)n, moved = 1;
        } else if (!is_finished) {
            noctule_flow_stats stats = {.size = sizeof stats};
            OK(noctule_flow_get_stats(out, 1, &stats));
            CHECK(stats.app_bytes == TOTAL && stats.source_packets > 0);
            OK(noctule_flow_finish(out));
            is_finished = 1;
        }
        if (held == 0 && !is_over) {
            ptrdiff_t n = noctule_flow_read(back, block, sizeof block);
            CHECK(n >= 0 || n == NOCTULE_ERROR_WOULD_BLOCK);
            if (n > 0) held = (size_t)n, echoed = 0, moved = 1;
            if (n == 0) {
                is_over = 1;
                OK(noctule_flow_finish(back));
            }
        }
        if (held > 0) {
            ptrdiff_t n = noctule_flow_write(back, block + echoed, held);
            CHECK(n > 0 || n == NOCTULE_ERROR_WOULD_BLOCK);
            if (n > 0) echoed += (size_t)n, held -= (size_t)n, moved = 1;
        }
        ptrdiff_t n = noctule_flow_read(out, got + read, TOTAL - read);
        CHECK(n > 0 || n == NOCTULE_ERROR_WOULD_BLOCK);
        if (n > 0) read += (size_t)n, moved = 1;
        /* Whatever it is, all four are tried again. */
        if (!moved) CHECK(noctule_poll(p.context, seen, 64, -1) > 0);
    }
    CHECK(memcmp(data, got, TOTAL) == 0);
    OK(noctule_flow_finish(out));
    CHECK(wait_for(p.context, NOCTULE_EVENT_KIND_FINISHED, out.id).error == 0);
    CHECK(read_some(&p, out, got, TOTAL) == 0);
    noctule_session_stats of_session = {.size = sizeof of_session};
    OK(noctule_session_get_stats(p.here, &of_session));
    CHECK(of_session.paths == 1 && of_session.app_bytes_sent == TOTAL && of_session.app_bytes_received == TOTAL);
    CHECK(of_session.smoothed_rtt > 0 && of_session.mtu >= 1200 && of_session.sent_bytes > TOTAL);
    noctule_endpoint_stats of_endpoint = {.size = sizeof of_endpoint};
    OK(noctule_endpoint_get_stats(p.client, &of_endpoint));
    CHECK(of_endpoint.sent_bytes > TOTAL && of_endpoint.memory_peak > 0);
    /* The outcome of the close. */
    noctule_outcome outcome = {.size = sizeof outcome};
    CHECK(noctule_session_outcome(p.here, &outcome) == NOCTULE_ERROR_WOULD_BLOCK);
    OK(noctule_session_close(p.here, 7, "that was all"));
    CHECK(wait_for(p.context, NOCTULE_EVENT_KIND_CLOSED, p.here.id).error == 0);
    OK(noctule_session_outcome(p.here, &outcome));
    CHECK(outcome.all_delivered == 1 && outcome.is_remote == 0 && outcome.application_code == 7);
    wait_for(p.context, NOCTULE_EVENT_KIND_CLOSED, p.there.id);
    OK(noctule_session_outcome(p.there, &outcome));
    CHECK(outcome.is_remote == 1 && outcome.application_code == 7 && strstr(outcome.reason, "that was all"));
    CHECK(noctule_flow_write(out, "x", 1) == NOCTULE_ERROR_MISUSE || noctule_flow_write(out, "x", 1) == NOCTULE_ERROR_CLOSED);
    noctule_flow none;
    REFUSED(NOCTULE_ERROR_CLOSED, "closed", noctule_session_open_stream(p.here, NULL, NULL, &none));
    free(data), free(got);
    close_pair(&p);
}

/* Messages: order, numbers, priority, lifetime, a buffer that is too small, the end. */
static void messages(void) {
    pair p = open_pair(NULL);
    noctule_flow out, in;
    noctule_flow_options options = {.size = sizeof options, .tag = 42};
    OK(noctule_session_open_messages(p.here, &options, NULL, &out));
    char text[64];
    uint64_t number, tag;
    size_t length;
    for (int i = 0; i < 500; i++) {
        int n = snprintf(text, sizeof text, "message %d", i);
        noctule_error error;
        while ((error = noctule_flow_send(out, text, (size_t)n, NULL, &number)) == NOCTULE_ERROR_WOULD_BLOCK)
            wait_for(p.context, NOCTULE_EVENT_KIND_WRITABLE, out.id);
        OK(error);
        CHECK(number == (uint64_t)i);
    }
    OK(noctule_flow_send(out, NULL, 0, NULL, NULL));
    OK(noctule_flow_finish(out));
    in = accept_flow(&p, p.there);
    OK(noctule_flow_tag(in, &tag));
    CHECK(tag == 42 && noctule_flow_kind(in) == NOCTULE_KIND_ORDERED && noctule_flow_direction(in) == 3);
    char buffer[64];
    CHECK(receive(&p, in, buffer, 3, &length, &number) == NOCTULE_ERROR_BUFFER_TOO_SMALL && length == 9);
    for (int i = 0; i < 500; i++) {
        int n = snprintf(text, sizeof text, "message %d", i);
        OK(receive(&p, in, buffer, sizeof buffer, &length, &number));
        CHECK(length == (size_t)n && memcmp(buffer, text, length) == 0 && number == (uint64_t)i);
    }
    OK(receive(&p, in, NULL, 0, &length, &number));
    CHECK(length == 0 && number == 500);
    CHECK(receive(&p, in, buffer, sizeof buffer, &length, NULL) == NOCTULE_ERROR_END);
    CHECK(wait_for(p.context, NOCTULE_EVENT_KIND_FINISHED, out.id).error == 0);
    REFUSED(NOCTULE_ERROR_MISUSE, "noctule_flow_send", noctule_flow_write(out, "x", 1));
    REFUSED(NOCTULE_ERROR_MISUSE, "noctule_flow_recv", noctule_flow_read(in, buffer, 1));

    /* What is older than its lifetime does not arrive: a flow at a rate far below what is offered. */
    OK(noctule_session_set_congestion(p.here, "rate", 1000000));
    noctule_flow_options timely = {.size = sizeof timely, .mode = NOCTULE_MODE_BTP, .kind = NOCTULE_KIND_UNORDERED, .lifetime = 100};
    noctule_flow late, early;
    OK(noctule_session_open_messages(p.here, &timely, NULL, &late));
    static char filler[20000];
    noctule_message_options urgent = {.size = sizeof urgent, .priority = 255, .lifetime = 60000};
    int sent = 0;
    for (; sent < 40 && noctule_flow_send(late, filler, sizeof filler, NULL, NULL) == 0; sent++) {}
    OK(noctule_flow_send(late, "urgent", 6, &urgent, NULL));
    OK(noctule_flow_finish(late));
    early = accept_flow(&p, p.there);
    int arrived = 0, is_urgent_here = 0;
    static char block[20000];
    noctule_error error;
    while ((error = receive(&p, early, block, sizeof block, &length, NULL)) == 0) {
        arrived++;
        is_urgent_here |= length == 6 && memcmp(block, "urgent", 6) == 0;
    }
    CHECK(error == NOCTULE_ERROR_END && is_urgent_here);
    /* Those of the flow go with it, the session's sums stay. */
    noctule_session_stats sums = {.size = sizeof sums};
    OK(noctule_session_get_stats(p.here, &sums));
    CHECK(arrived < sent && sums.messages_expired > 0);

    /* A message that is withdrawn, one that is too large. */
    noctule_flow more;
    uint32_t withdrawn = 9;
    OK(noctule_session_open_messages(p.here, NULL, NULL, &more));
    OK(noctule_flow_send(more, filler, sizeof filler, NULL, NULL));
    OK(noctule_flow_send(more, filler, sizeof filler, NULL, &number));
    OK(noctule_flow_cancel(more, number, &withdrawn));
    CHECK(withdrawn == 1);
    size_t huge = 17u << 20;
    char *large = calloc(1, huge);
    REFUSED(NOCTULE_ERROR_MESSAGE_TOO_LARGE, "limit of", noctule_flow_send(more, large, huge, NULL, NULL));
    free(large);
    OK(noctule_flow_reset(more, 5));
    REFUSED(NOCTULE_ERROR_FLOW_CLOSED, "given up here", noctule_flow_send(more, "x", 1, NULL, NULL));
    noctule_flow there = accept_flow(&p, p.there);
    while ((error = receive(&p, there, block, sizeof block, &length, NULL)) == 0) {}
    uint64_t code = 0;
    OK(noctule_flow_far_code(there, &code));
    CHECK(error == NOCTULE_ERROR_FLOW_RESET && code == 5);
    close_pair(&p);
}

static void datagrams(void) {
    pair p = open_pair(NULL);
    char buffer[4000], big[4000];
    size_t length = 0;
    memset(big, 'd', sizeof big);
    CHECK(noctule_session_recv_datagram(p.there, buffer, sizeof buffer, &length) == NOCTULE_ERROR_WOULD_BLOCK);
    OK(noctule_session_send_datagram(p.here, big, sizeof big));
    wait_for(p.context, NOCTULE_EVENT_KIND_DATAGRAM, p.there.id);
    CHECK(noctule_session_recv_datagram(p.there, buffer, 10, &length) == NOCTULE_ERROR_BUFFER_TOO_SMALL && length == sizeof big);
    OK(noctule_session_recv_datagram(p.there, buffer, sizeof buffer, &length));
    CHECK(length == sizeof big && memcmp(buffer, big, length) == 0);
    noctule_flow none;
    CHECK(noctule_session_accept(p.there, NULL, &none) == NOCTULE_ERROR_WOULD_BLOCK);
    close_pair(&p);
}

/* With a control for media the program is told what to produce. */
static void target_rate(void) {
    pair p = open_pair(NULL);
    double rate = -1, grown = -1;
    CHECK(noctule_session_target_rate(p.here, NULL) == NOCTULE_ERROR_NULL_ARGUMENT);
    CHECK(noctule_session_target_rate(p.here, &rate) == NOCTULE_ERROR_WOULD_BLOCK && rate == -1);
    OK(noctule_session_set_congestion(p.here, "gcc", 0));
    wait_for(p.context, NOCTULE_EVENT_KIND_TARGET_RATE, p.here.id);
    OK(noctule_session_target_rate(p.here, &rate));
    CHECK(rate > 20e3 && rate < 5e6);
    /* Told once, and again when what was sent has shown that there is more. */
    noctule_flow out;
    OK(noctule_session_open_uni(p.here, NULL, NULL, &out));
    static unsigned char block[65536];
    while (grown < 2 * rate) {
        (void)noctule_flow_write(out, block, sizeof block);
        noctule_error error = noctule_session_target_rate(p.here, &grown);
        CHECK(error == NOCTULE_ERROR_OK || error == NOCTULE_ERROR_WOULD_BLOCK);
        if (error) wait_for(p.context, NOCTULE_EVENT_KIND_TARGET_RATE, p.here.id);
    }
    OK(noctule_session_abort(p.here, 0, NULL));
    wait_for(p.context, NOCTULE_EVENT_KIND_CLOSED, p.here.id);
    while (noctule_session_target_rate(p.here, &rate) != NOCTULE_ERROR_CLOSED) usleep(1000);
    close_pair(&p);
}

static noctule_error connect_to(pair *p, const char *host, const char *key, char *words, size_t capacity) {
    noctule_session session;
    OK(noctule_endpoint_connect(p->client, host, key, NULL, &session));
    noctule_event event = wait_for(p->context, NOCTULE_EVENT_KIND_CONNECTED, session.id);
    noctule_error error = noctule_session_failure(session, words, capacity);
    CHECK(error == event.error);
    if (error) {
        noctule_flow flow;
        CHECK(noctule_session_open_stream(session, NULL, NULL, &flow) == error);
        CHECK(noctule_session_close(session, 0, NULL) == error);
    }
    OK(noctule_session_free(session));
    return error;
}

/* Which peers are let in, which are not, and what is said about it. */
static void connecting(void) {
    noctule_identity known, stranger;
    OK(noctule_identity_generate(&known));
    OK(noctule_identity_generate(&stranger));
    char known_key[NOCTULE_KEY_TEXT], other_key[NOCTULE_KEY_TEXT], words[300];
    OK(noctule_identity_public_key(known, known_key, sizeof known_key));
    OK(noctule_identity_public_key(stranger, other_key, sizeof other_key));
    const char *keys[] = {known_key};
    noctule_endpoint_options options = {.size = sizeof options, .authorised = keys, .authorised_count = 1, .congestion = "bbr"};
    pair p = open_endpoints(NULL);
    OK(noctule_endpoint_free(p.server));
    OK(noctule_endpoint_bind(p.context, (noctule_identity){0}, "127.0.0.1:0", &options, NULL, &p.server));
    OK(noctule_endpoint_address(p.server, p.address, sizeof p.address));
    OK(noctule_endpoint_public_key(p.server, p.key, sizeof p.key));
    CHECK(connect_to(&p, p.address, p.key, words, sizeof words) == NOCTULE_ERROR_NOT_AUTHORISED);
    OK(noctule_endpoint_free(p.client));
    /* A server does not answer what is sealed for another key: the attempt lasts until its end. */
    noctule_endpoint_options brief = {.size = sizeof brief, .connect_timeout = 1000};
    OK(noctule_endpoint_client(p.context, known, &brief, NULL, &p.client));
    CHECK(connect_to(&p, p.address, p.key, words, sizeof words) == NOCTULE_ERROR_OK && words[0] == 0);
    CHECK(connect_to(&p, p.address, other_key, words, sizeof words) == NOCTULE_ERROR_WRONG_KEY);
    CHECK(strstr(words, p.key) && strstr(words, other_key));
    CHECK(connect_to(&p, "no-such-host.invalid:4242", other_key, words, sizeof words) == NOCTULE_ERROR_RESOLVE);
    CHECK(strstr(words, "no-such-host.invalid"));
    CHECK(connect_to(&p, "no port", other_key, words, 12) == NOCTULE_ERROR_INVALID_ARGUMENT && strlen(words) == 11);
    CHECK(connect_to(&p, "127.0.0.1:1", other_key, words, sizeof words) == NOCTULE_ERROR_NOBODY_LISTENS);
    /* Any key, to be looked at afterwards. */
    noctule_session session;
    OK(noctule_endpoint_connect(p.client, p.address, "any", NULL, &session));
    CHECK(wait_for(p.context, NOCTULE_EVENT_KIND_CONNECTED, session.id).error == 0);
    OK(noctule_session_peer_key(session, words, sizeof words));
    CHECK(strcmp(words, p.key) == 0);
    OK(noctule_session_address(session, words, sizeof words));
    CHECK(strcmp(words, p.address) == 0);
    /* As long as nobody answers. */
    struct sockaddr_in silent = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof silent;
    int socket_of_nobody = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(bind(socket_of_nobody, (struct sockaddr *)&silent, length) == 0);
    CHECK(getsockname(socket_of_nobody, (struct sockaddr *)&silent, &length) == 0);
    char nobody[40];
    snprintf(nobody, sizeof nobody, "127.0.0.1:%d", ntohs(silent.sin_port));
    OK(noctule_endpoint_connect(p.client, nobody, p.key, NULL, &session));
    noctule_flow none;
    REFUSED(NOCTULE_ERROR_NOT_CONNECTED, "CONNECTED", noctule_session_peer_key(session, words, sizeof words));
    REFUSED(NOCTULE_ERROR_NOT_CONNECTED, "CONNECTED", noctule_session_failure(session, words, sizeof words));
    REFUSED(NOCTULE_ERROR_NOT_CONNECTED, "CONNECTED", noctule_session_open_stream(session, NULL, NULL, &none));
    REFUSED(NOCTULE_ERROR_NOT_CONNECTED, "CONNECTED", noctule_session_close(session, 0, NULL));
    CHECK(wait_for(p.context, NOCTULE_EVENT_KIND_CONNECTED, session.id).error == NOCTULE_ERROR_UNREACHABLE);
    OK(noctule_session_free(session));
    close(socket_of_nobody);
    /* An attempt that is given up at once, and one that its endpoint is freed under. */
    OK(noctule_endpoint_connect(p.client, p.address, p.key, NULL, &session));
    OK(noctule_session_free(session));
    OK(noctule_endpoint_connect(p.client, p.address, p.key, NULL, &session));
    OK(noctule_endpoint_free(p.client));
    CHECK(wait_for(p.context, NOCTULE_EVENT_KIND_CONNECTED, session.id).error == 0);
    noctule_endpoint taken;
    REFUSED(NOCTULE_ERROR_ADDRESS_IN_USE, "in use", noctule_endpoint_bind(p.context, known, p.address, NULL, NULL, &taken));
    REFUSED(NOCTULE_ERROR_ADDRESS_UNAVAILABLE, "not available", noctule_endpoint_bind(p.context, known, "192.0.2.1:0", NULL, NULL, &taken));
    OK(noctule_identity_free(known));
    OK(noctule_identity_free(stranger));
    close_pair(&p);
}

/* Null, wrong lengths, texts that are none: an error with words, never more. */
static void arguments(void) {
    noctule_context context = {0};
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "context is null", noctule_context_new(NOCTULE_ABI, 1, NULL));
    REFUSED(NOCTULE_ERROR_VERSION, "ABI 999", noctule_context_new(999, 1, &context));
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "at most 256", noctule_context_new(NOCTULE_ABI, 100000, &context));
    pair p = open_pair(NULL);
    noctule_event event;
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "events is null", noctule_poll(p.context, NULL, 1, 0));
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "count is 0", noctule_poll(p.context, &event, 0, 0));
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "callback is null", noctule_context_set_callback(p.context, NULL, NULL));
    /* Identities. */
    noctule_identity identity = {0};
    char text[NOCTULE_SECRET_TEXT], bytes[33] = {0}, key[NOCTULE_KEY_TEXT];
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "identity is null", noctule_identity_generate(NULL));
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "text is null", noctule_identity_from_text(NULL, &identity));
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "secret-", noctule_identity_from_text("hello", &identity));
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "not UTF-8", noctule_identity_from_text("\xff\xfe", &identity));
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "32 bytes, this has 33", noctule_identity_from_bytes(bytes, 33, &identity));
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "bytes is null", noctule_identity_from_bytes(NULL, 32, &identity));
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "negative", noctule_identity_from_bytes(bytes, (size_t)-1, &identity));
    REFUSED(NOCTULE_ERROR_SYSTEM, "/no/such/file", noctule_identity_load("/no/such/file", &identity));
    CHECK(identity.id == 0);
    OK(noctule_identity_from_bytes(bytes, 32, &identity));
    REFUSED(NOCTULE_ERROR_BUFFER_TOO_SMALL, "needs 57", noctule_identity_public_key(identity, key, sizeof key - 1));
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "text is null", noctule_identity_public_key(identity, NULL, 57));
    OK(noctule_identity_secret_text(identity, text, sizeof text));
    OK(noctule_identity_public_key(identity, key, sizeof key));
    OK(noctule_key_check(key));
    key[5] = key[5] == 'a' ? 'b' : 'a';
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "typing error", noctule_key_check(key));
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "secret key", noctule_key_check(text));
    char path[] = "/tmp/noctule-c-XXXXXX";
    CHECK(mkdtemp(path));
    char file[64];
    snprintf(file, sizeof file, "%s/key", path);
    OK(noctule_identity_save(identity, file));
    REFUSED(NOCTULE_ERROR_SYSTEM, "exists", noctule_identity_save(identity, file));
    noctule_identity again;
    OK(noctule_identity_load(file, &again));
    char twice[NOCTULE_SECRET_TEXT];
    OK(noctule_identity_secret_text(again, twice, sizeof twice));
    CHECK(strcmp(text, twice) == 0);
    char command[100];
    snprintf(command, sizeof command, "chmod 644 %s", file);
    CHECK(system(command) == 0);
    REFUSED(NOCTULE_ERROR_PERMISSION, "mode 0644", noctule_identity_load(file, &again));
    unlink(file), rmdir(path);
    /* Endpoints. */
    noctule_endpoint endpoint = {0};
    noctule_identity fresh = {0};
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "address is null", noctule_endpoint_bind(p.context, fresh, NULL, NULL, NULL, &endpoint));
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "endpoint is null", noctule_endpoint_bind(p.context, fresh, "127.0.0.1:0", NULL, NULL, NULL));
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "no address with a port", noctule_endpoint_bind(p.context, fresh, "localhost", NULL, NULL, &endpoint));
    noctule_endpoint_options options = {0};
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "sizeof(noctule_endpoint_options)", noctule_endpoint_client(p.context, fresh, &options, NULL, &endpoint));
    options.size = sizeof options + 8;
    REFUSED(NOCTULE_ERROR_VERSION, "older than the header", noctule_endpoint_client(p.context, fresh, &options, NULL, &endpoint));
    options = (noctule_endpoint_options){.size = sizeof options, .congestion = "fast"};
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "cubic", noctule_endpoint_client(p.context, fresh, &options, NULL, &endpoint));
    options = (noctule_endpoint_options){.size = sizeof options, .congestion = "rate"};
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "needs a rate", noctule_endpoint_client(p.context, fresh, &options, NULL, &endpoint));
    options = (noctule_endpoint_options){.size = sizeof options, .psk = "shared-x"};
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "psk", noctule_endpoint_client(p.context, fresh, &options, NULL, &endpoint));
    options = (noctule_endpoint_options){.size = sizeof options, .authorised_count = 3};
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "authorised is null", noctule_endpoint_client(p.context, fresh, &options, NULL, &endpoint));
    const char *keys[] = {NULL};
    options = (noctule_endpoint_options){.size = sizeof options, .authorised = keys, .authorised_count = 1};
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "authorised is null", noctule_endpoint_client(p.context, fresh, &options, NULL, &endpoint));
    /* An older header's structure ends earlier. */
    options = (noctule_endpoint_options){.size = sizeof(size_t) + sizeof(char *), .congestion = "reno", .psk = "beyond what is read"};
    OK(noctule_endpoint_client(p.context, fresh, &options, NULL, &endpoint));
    noctule_session session = {0};
    REFUSED(NOCTULE_ERROR_MISUSE, "refuses sessions", noctule_endpoint_accept(endpoint, NULL, &session));
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "session is null", noctule_endpoint_accept(p.server, NULL, NULL));
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "host is null", noctule_endpoint_connect(endpoint, NULL, "any", NULL, &session));
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "key is null", noctule_endpoint_connect(endpoint, p.address, NULL, NULL, &session));
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "characters", noctule_endpoint_connect(endpoint, p.address, "", NULL, &session));
    REFUSED(NOCTULE_ERROR_BUFFER_TOO_SMALL, "text has 3 bytes", noctule_endpoint_address(endpoint, text, 3));
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "2^62", noctule_endpoint_close(endpoint, UINT64_MAX, NULL));
    /* Sessions and flows. */
    noctule_flow flow = {0};
    noctule_flow_options odd = {.size = sizeof odd, .mode = 77};
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "mode 77", noctule_session_open_messages(p.here, &odd, NULL, &flow));
    odd = (noctule_flow_options){.size = sizeof odd, .batch_size = 15};
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "batch_size 15", noctule_session_open_messages(p.here, &odd, NULL, &flow));
    odd = (noctule_flow_options){.size = sizeof odd, .kind = NOCTULE_KIND_STREAM};
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "open_messages", noctule_session_open_messages(p.here, &odd, NULL, &flow));
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "flow is null", noctule_session_open_stream(p.here, NULL, NULL, NULL));
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "data is null", noctule_session_send_datagram(p.here, NULL, 1));
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "length is null", noctule_session_recv_datagram(p.here, text, 1, NULL));
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "not UTF-8", noctule_session_close(p.here, 0, "\xff"));
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "belongs to", noctule_session_set_congestion(p.here, "bbr", 1));
    noctule_outcome outcome = {.size = 3};
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "sizeof(noctule_outcome)", noctule_session_outcome(p.here, &outcome));
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "noctule_outcome is null", noctule_session_outcome(p.here, NULL));
    OK(noctule_session_open_uni(p.here, NULL, NULL, &flow));
    REFUSED(NOCTULE_ERROR_NULL_ARGUMENT, "data is null", noctule_flow_write(flow, NULL, 1));
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "negative", noctule_flow_write(flow, "x", (size_t)-1));
    REFUSED(NOCTULE_ERROR_MISUSE, "one direction", noctule_flow_read(flow, text, 1));
    REFUSED(NOCTULE_ERROR_MISUSE, "nothing comes in", noctule_flow_stop(flow, 0));
    REFUSED(NOCTULE_ERROR_MISUSE, "noctule_flow_write", noctule_flow_send(flow, "x", 1, NULL, NULL));
    REFUSED(NOCTULE_ERROR_MISUSE, "come in", noctule_flow_recv(flow, text, 1, &(size_t){0}, NULL));
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "capacity is 0", noctule_flow_read(flow, text, 0));
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "2^62", noctule_flow_reset(flow, UINT64_MAX));
    CHECK(noctule_flow_write(flow, NULL, 0) == 0);
    noctule_message_options loud = {.size = sizeof loud, .priority = 256};
    REFUSED(NOCTULE_ERROR_INVALID_ARGUMENT, "priority 256", noctule_flow_send(flow, "x", 1, &loud, NULL));
    /* What a newer program asks of the statistics is zero. */
    struct { noctule_flow_stats known; uint64_t unknown; } wide;
    memset(&wide, 0xff, sizeof wide);
    wide.known.size = sizeof wide;
    OK(noctule_flow_get_stats(flow, 1, &wide.known));
    CHECK(wide.unknown == 0 && wide.known.size == sizeof wide && wide.known.app_bytes == 0);
    CHECK(strcmp(noctule_error_text(NOCTULE_ERROR_WRONG_KEY), "another key than the pinned one answered") == 0);
    CHECK(strlen(noctule_error_text(12345)) > 0 && strlen(noctule_version()) > 2);
    OK(noctule_identity_free(identity));
    OK(noctule_identity_free(again));
    close_pair(&p);
}

/* Every call knows a handle that was freed, one of another kind, and one that never was. */
static void closed_handles(void) {
    pair p = open_pair(NULL);
    noctule_flow flow, there;
    char text[100];
    size_t length;
    OK(noctule_session_open_stream(p.here, NULL, NULL, &flow));
    write_all(&p, flow, "hello", 5);
    there = accept_flow(&p, p.there);
    OK(noctule_flow_free(flow));
    noctule_flow freed[] = {flow, {0}, {p.here.id}, {UINT64_MAX}};
    for (size_t i = 0; i < sizeof freed / sizeof *freed; i++) {
        noctule_flow f = freed[i];
        uint64_t number;
        noctule_flow_stats stats = {.size = sizeof stats};
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "flow", noctule_flow_write(f, "x", 1));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "flow", noctule_flow_read(f, text, 1));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "flow", noctule_flow_send(f, "x", 1, NULL, NULL));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "flow", noctule_flow_recv(f, text, 1, &length, NULL));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "flow", noctule_flow_finish(f));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "flow", noctule_flow_reset(f, 0));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "flow", noctule_flow_stop(f, 0));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "flow", noctule_flow_cancel(f, 0, NULL));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "flow", noctule_flow_kind(f));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "flow", noctule_flow_direction(f));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "flow", noctule_flow_tag(f, &number));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "flow", noctule_flow_far_code(f, &number));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "flow", noctule_flow_get_stats(f, 1, &stats));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "flow", noctule_flow_set_user(f, NULL));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "flow", noctule_flow_free(f));
    }
    /* A new flow in the place of the old one is another one. */
    noctule_flow next;
    OK(noctule_session_open_stream(p.here, NULL, NULL, &next));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "freed", noctule_flow_finish(flow));
    /* Parents before children: what was written arrives. */
    noctule_session here = p.here, peer = p.there;
    OK(noctule_endpoint_free(p.client));
    OK(noctule_session_free(here));
    OK(noctule_session_free(peer));
    CHECK(read_some(&p, there, text, sizeof text) == 5);
    write_all(&p, next, "later", 5);
    OK(noctule_flow_finish(next));
    CHECK(wait_for(p.context, NOCTULE_EVENT_KIND_FINISHED, next.id).error == 0);
    noctule_session gone[] = {here, {0}, {there.id}};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        noctule_session s = gone[i];
        noctule_outcome outcome = {.size = sizeof outcome};
        noctule_session_stats stats = {.size = sizeof stats};
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_peer_key(s, text, sizeof text));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_address(s, text, sizeof text));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_failure(s, text, sizeof text));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_open_stream(s, NULL, NULL, &flow));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_open_uni(s, NULL, NULL, &flow));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_open_messages(s, NULL, NULL, &flow));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_accept(s, NULL, &flow));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_send_datagram(s, "x", 1));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_recv_datagram(s, text, 1, &length));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_set_congestion(s, "bbr", 0));
        double rate;
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_target_rate(s, &rate));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_close(s, 0, NULL));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_abort(s, 0, NULL));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_outcome(s, &outcome));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_get_stats(s, &stats));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_set_user(s, NULL));
        REFUSED(NOCTULE_ERROR_BAD_HANDLE, "session", noctule_session_free(s));
    }
    noctule_endpoint_stats stats = {.size = sizeof stats};
    noctule_session session;
    noctule_endpoint e = p.client;
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "endpoint", noctule_endpoint_address(e, text, sizeof text));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "endpoint", noctule_endpoint_public_key(e, text, sizeof text));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "endpoint", noctule_endpoint_accept(e, NULL, &session));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "endpoint", noctule_endpoint_connect(e, p.address, "any", NULL, &session));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "endpoint", noctule_endpoint_notify_idle(e));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "endpoint", noctule_endpoint_close(e, 0, NULL));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "endpoint", noctule_endpoint_get_stats(e, &stats));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "endpoint", noctule_endpoint_free(e));
    /* A context takes all of its handles with it, at once. */
    noctule_event event;
    noctule_context context = p.context;
    OK(noctule_context_free(context));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "flow", noctule_flow_free(next));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "endpoint", noctule_endpoint_free(p.server));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "context", noctule_context_fd(context));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "context", noctule_poll(context, &event, 1, -1));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "context", noctule_context_set_callback(context, NULL, NULL));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "context", noctule_context_wait_callbacks(context));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "context", noctule_endpoint_client(context, (noctule_identity){0}, NULL, NULL, &e));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "context", noctule_context_free(context));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "context", noctule_context_free_wait(context, 0));
    noctule_identity identity;
    OK(noctule_identity_generate(&identity));
    OK(noctule_identity_free(identity));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "identity", noctule_identity_free(identity));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "identity", noctule_identity_save(identity, "/nowhere"));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "identity", noctule_identity_public_key(identity, text, sizeof text));
    REFUSED(NOCTULE_ERROR_BAD_HANDLE, "identity", noctule_identity_secret_text(identity, text, sizeof text));
}

/* The descriptor is readable while something waits, and only then. */
static void descriptor(void) {
    pair p = open_pair(NULL);
    struct pollfd fd = {.fd = noctule_context_fd(p.context), .events = POLLIN};
    CHECK(fd.fd >= 0);
    while (noctule_poll(p.context, seen, 64, 0) > 0) {}
    noctule_flow flow;
    OK(noctule_session_open_stream(p.here, NULL, NULL, &flow));
    CHECK(noctule_flow_write(flow, "x", 1) == 1);
    CHECK(poll(&fd, 1, 60000) == 1);
    noctule_event event;
    int count = noctule_poll(p.context, &event, 1, 0);
    CHECK(count == 1 && event.kind == NOCTULE_EVENT_KIND_FLOW && event.session.id == p.there.id && event.flow.id == 0);
    CHECK(noctule_poll(p.context, &event, 1, 0) == 0);
    CHECK(poll(&fd, 1, 0) == 0);
    /* User pointers come with the events. */
    int marker;
    noctule_flow there;
    OK(noctule_session_accept(p.there, &marker, &there));
    event = wait_for(p.context, NOCTULE_EVENT_KIND_READABLE, there.id);
    CHECK(event.user == &marker && event.session.id == p.there.id && event.endpoint.id == p.server.id);
    char byte;
    CHECK(noctule_flow_read(there, &byte, 1) == 1 && noctule_flow_read(there, &byte, 1) == NOCTULE_ERROR_WOULD_BLOCK);
    OK(noctule_flow_set_user(there, &byte));
    CHECK(noctule_flow_write(flow, "y", 1) == 1);
    CHECK(wait_for(p.context, NOCTULE_EVENT_KIND_READABLE, there.id).user == &byte);
    /* The far end stops the stream: its writer hears of it. */
    OK(noctule_flow_stop(there, 9));
    ptrdiff_t n;
    while ((n = noctule_flow_write(flow, "z", 1)) == 1 || n == NOCTULE_ERROR_WOULD_BLOCK) {}
    uint64_t code;
    OK(noctule_flow_far_code(flow, &code));
    CHECK(n == NOCTULE_ERROR_FLOW_STOPPED && code == 9);
    close_pair(&p);
}

static int entries(const char *path) {
    DIR *directory = opendir(path);
    CHECK(directory);
    int count = 0;
    while (readdir(directory)) count++;
    closedir(directory);
    return count;
}

static void open_and_drop(pair *p, int count) {
    noctule_session sessions[200], theirs[200];
    noctule_flow flows[200];
    CHECK(count <= 200);
    for (int i = 0; i < count; i++) OK(noctule_endpoint_connect(p->client, p->address, p->key, NULL, &sessions[i]));
    for (int i = 0; i < count; i++) {
        CHECK(wait_for(p->context, NOCTULE_EVENT_KIND_CONNECTED, sessions[i].id).error == 0);
        OK(noctule_session_open_stream(sessions[i], NULL, NULL, &flows[i]));
        CHECK(noctule_flow_write(flows[i], "hello", 5) == 5);
        theirs[i] = accept_session(p);
    }
    for (int i = 0; i < count; i++) {
        /* In an order of its own for each. */
        OK(i % 2 ? noctule_session_free(sessions[i]) : noctule_flow_free(flows[i]));
        OK(i % 2 ? noctule_flow_free(flows[i]) : noctule_session_free(sessions[i]));
        OK(noctule_session_free(theirs[i]));
    }
    OK(noctule_endpoint_notify_idle(p->client));
    OK(noctule_endpoint_notify_idle(p->server));
    wait_for(p->context, NOCTULE_EVENT_KIND_IDLE, p->client.id);
    wait_for(p->context, NOCTULE_EVENT_KIND_IDLE, p->server.id);
    seen_count = 0;
}

/* A thousand connections leave nothing behind. */
static void thousand(void) {
    /* What the process makes once, for all contexts. */
    mallopt(M_ARENA_MAX, 1); /* mallinfo2 counts the first one only. */
    noctule_context first;
    OK(noctule_context_new(NOCTULE_ABI, 1, &first));
    OK(noctule_context_free_wait(first, 0));
    int files = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    size_t empty = mallinfo2().uordblks;
    noctule_endpoint_options options = {.size = sizeof options, .max_sessions = 4000, .max_sessions_per_key = 4000};
    pair p = open_endpoints(&options);
    open_and_drop(&p, 200);
    noctule_endpoint_stats stats = {.size = sizeof stats};
    int files_after = entries("/proc/self/fd"), threads_after = entries("/proc/self/task");
    for (int i = 0; i < 4; i++) open_and_drop(&p, 200);
    CHECK(entries("/proc/self/fd") == files_after && entries("/proc/self/task") == threads_after);
    OK(noctule_endpoint_get_stats(p.server, &stats));
    CHECK(stats.memory_used == 0);
    close_pair(&p);
    size_t after = mallinfo2().uordblks;
    fprintf(stderr, "allocated before %zu bytes, after %zu\n", empty, after);
    /* The table of handles keeps its places for others. */
    CHECK(after < empty + 200000);
    fprintf(stderr, "descriptors %d and %d, threads %d and %d\n", files, entries("/proc/self/fd"), threads, entries("/proc/self/task"));
    CHECK(entries("/proc/self/fd") == files && entries("/proc/self/task") == threads);
}

int main(int count, char **arguments_of) {
    static const struct { const char *name; void (*run)(void); } tests[] = {
        {"echo", echo}, {"messages", messages}, {"datagrams", datagrams}, {"target_rate", target_rate}, {"connecting", connecting},
        {"arguments", arguments}, {"closed_handles", closed_handles}, {"descriptor", descriptor}, {"thousand", thousand},
    };
    alarm(120); /* Ends what hangs. */
    for (size_t i = 0; count == 2 && i < sizeof tests / sizeof *tests; i++) {
        if (strcmp(tests[i].name, arguments_of[1]) == 0) {
            tests[i].run();
            return 0;
        }
    }
    fprintf(stderr, "usage: poll TEST\n");
    return 2;
}
