/* The C functions with what a program must not give them: handles PORT. Every one answers with an error. */
#include "include/c/c_bats_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what)                                                      \
    do {                                                                 \
        if (!(what)) {                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);   \
            _exit(1);                                                    \
        }                                                                \
    } while (0)

static volatile int established, closed, received, listening, failed;
static bats_connection_handle_t client;

static bool on_event(bats_connection_handle_t connection, bats_conn_event_t event, const unsigned char *data, int length, void *user) {
    CHECK(connection != NULL && strcmp(user, "user") == 0);
    if (event == bats_connection_established) {
        const int ideal = bats_connection_get_ideal_buffer_length(connection);
        CHECK(ideal > 0 && ideal <= 150000);
        client = connection;
        established = 1;
    }
    if (event == bats_connection_data_received) {
        CHECK(length == 5 && memcmp(data, "hello", 5) == 0);
        received++;
    }
    if (event == bats_connection_closed || event == bats_connection_shutdown_by_peer) closed++;
    return true;
}

static void on_listen(bats_connection_handle_t connection, bats_listen_event_t event, void *user) {
    if (event == bats_listen_success) listening = 1;
    if (event == bats_listen_failed) failed = 1;
    if (event == bats_listen_new_connection) bats_connection_set_callback(connection, on_event, user);
}

static void wait_for(volatile int *value, int wanted) {
    for (int i = 0; *value < wanted; i++) {
        CHECK(i < 20000);
        usleep(1000);
    }
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    const uint16_t port = (uint16_t)atoi(argv[1]);
    char user[] = "user";

    /* Null, numbers that never were handles, and handles of another kind. */
    const bats_connection_handle_t no_connection = (bats_connection_handle_t)12345;
    CHECK(bats_protocol_create(NULL, NULL) == NULL);
    CHECK(bats_protocol_create((bats_context_handle_t)3, NULL) == NULL);
    bats_context_destroy(NULL);
    bats_context_destroy((bats_context_handle_t)7);
    bats_config_set_mode(NULL, bats_transport_brtp);
    bats_config_destroy(NULL);
    bats_protocol_destroy(NULL);
    bats_context_set_signal_callback(NULL, NULL);
    CHECK(bats_connection_send_data(NULL, (const unsigned char *)"x", 1) == bats_error_invalid_param);
    CHECK(bats_connection_send_data(no_connection, (const unsigned char *)"x", 1) == bats_error_invalid_param);
    CHECK(bats_connection_send_file(no_connection, "/dev/null") == bats_error_invalid_param);
    CHECK(bats_connection_is_writable(no_connection) == 0 && bats_connection_get_ideal_buffer_length(NULL) == 0);
    bats_connection_set_callback(no_connection, on_event, NULL);
    CHECK(bats_protocol_stop_listen(NULL) == bats_error_invalid_param);
    CHECK(bats_protocol_stop_connection(NULL, NULL) == bats_error_invalid_param);

    bats_context_handle_t context = bats_context_create();
    bats_config_handle_t config = bats_config_create();
    CHECK(context && config);
    bats_config_set_local_addr(config, NULL);
    bats_config_cert_file(config, NULL);
    bats_config_set_mode(config, 12);
    CHECK(bats_protocol_create(context, config) == NULL);
    bats_config_set_mode(config, 1000);
    CHECK(bats_protocol_create(context, config) == NULL);
    bats_config_set_mode(config, bats_transport_brtp);
    bats_config_set_cc(config, 17);
    CHECK(bats_protocol_create(context, config) == NULL);
    bats_config_set_cc(config, bats_cc_bbrv2);
    bats_protocol_handle_t server = bats_protocol_create(context, config), protocol = bats_protocol_create(context, NULL);
    CHECK(server && protocol);
    bats_config_destroy(config);
    bats_config_destroy(config);
    bats_config_set_timeout(config, 5);
    CHECK(bats_protocol_create(context, config) == NULL);

    CHECK(bats_protocol_start_listen(server, NULL, port, on_listen, user) == bats_error_invalid_param);
    CHECK(bats_protocol_start_listen(server, "127.0.0.1", port, NULL, user) == bats_error_invalid_param);
    CHECK(bats_protocol_start_listen(server, "192.0.2.1", port, on_listen, user) == bats_error_listen_failed);
    wait_for(&failed, 1);
    CHECK(bats_protocol_stop_listen(server) == bats_error_invalid_param);
    CHECK(bats_protocol_start_listen(server, "127.0.0.1", port, on_listen, user) == bats_error_none);
    wait_for(&listening, 1);
    CHECK(bats_protocol_start_connect(protocol, NULL, port, on_event, user) == bats_error_invalid_param);
    CHECK(bats_protocol_start_connect(protocol, "127.0.0.1", 0, on_event, user) == bats_error_invalid_param);
    CHECK(bats_protocol_start_connect(protocol, "127.0.0.1", port, NULL, user) == bats_error_invalid_param);
    CHECK(bats_protocol_start_connect(protocol, "127.0.0.1", port, on_event, user) == bats_error_none);
    wait_for(&established, 1);

    CHECK(bats_connection_send_data(client, NULL, 5) == bats_error_invalid_param);
    CHECK(bats_connection_send_data(client, (const unsigned char *)"hello", 0) == bats_error_invalid_param);
    CHECK(bats_connection_send_data(client, (const unsigned char *)"hello", 150001) == bats_error_invalid_param);
    CHECK(bats_connection_send_file(client, NULL) == bats_error_invalid_param);
    CHECK(bats_connection_send_file(client, "/no/such/file") == bats_error_send_failed);
    CHECK(bats_connection_send_data(client, (const unsigned char *)"hello", 5) == bats_error_none);
    wait_for(&received, 1);
    /* Another protocol's connection, then its own; then it is over. */
    CHECK(bats_protocol_stop_connection(server, client) == bats_error_invalid_param);
    CHECK(bats_protocol_stop_connection(protocol, NULL) == bats_error_none);
    CHECK(bats_protocol_stop_connection(protocol, client) == bats_error_none);
    wait_for(&closed, 2);
    usleep(10000);
    CHECK(bats_connection_send_data(client, (const unsigned char *)"hello", 5) == bats_error_connection_closed);
    CHECK(bats_protocol_stop_connection(protocol, client) == bats_error_connection_closed);
    CHECK(bats_connection_is_writable(client) == 0);

    CHECK(bats_protocol_stop_listen(server) == bats_error_none);
    bats_protocol_destroy(protocol);
    bats_protocol_destroy(protocol);
    CHECK(bats_protocol_start_connect(protocol, "127.0.0.1", port, on_event, user) == bats_error_invalid_param);
    /* The context before a protocol: what lives keeps what it needs. */
    bats_context_destroy(context);
    bats_protocol_destroy(server);
    bats_context_destroy(context);
    return 0;
}
