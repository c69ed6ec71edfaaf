/* Echoes what comes to 127.0.0.1, port 12345, and prints events: echo_server CERT KEY [MODE] [PORT]. Ends with the connection, or by SIGINT. Written for the BATS API in C. */
#include "include/c/c_bats_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int is_running = 1;

static void on_signal(int signal) {
    (void)signal;
    is_running = 0;
}

static bool on_event(bats_connection_handle_t connection, bats_conn_event_t event, const unsigned char *data, int length, void *user) {
    (void)user;
    switch (event) {
    case bats_connection_established: puts("established"); break;
    case bats_connection_send_complete: puts("sent"); break;
    case bats_connection_data_received:
        /* Tried until there is room: the thread that empties the buffer is another one. */
        while (is_running && bats_connection_send_data(connection, data, length) == bats_error_send_failed) {
        }
        break;
    case bats_connection_closed:
    case bats_connection_shutdown_by_peer:
        puts("closed");
        is_running = 0;
        break;
    default: break;
    }
    return true;
}

static void on_listen(bats_connection_handle_t connection, bats_listen_event_t event, void *user) {
    (void)user;
    if (event == bats_listen_success) puts("listening");
    if (event == bats_listen_failed) is_running = 0;
    if (event == bats_listen_new_connection) bats_connection_set_callback(connection, on_event, NULL);
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc < 3 || access(argv[1], R_OK) != 0 || access(argv[2], R_OK) != 0) {
        fprintf(stderr, "usage: echo_server CERT KEY [MODE] [PORT], with files that exist\n");
        return 1;
    }
    const uint16_t port = (uint16_t)(argc > 4 ? atoi(argv[4]) : 12345);
    bats_context_handle_t context = bats_context_create();
    bats_context_set_signal_callback(context, on_signal);
    bats_config_handle_t config = bats_config_create();
    bats_config_set_mode(config, argc > 3 ? atoi(argv[3]) : bats_transport_brtp);
    bats_config_set_timeout(config, 2);
    bats_config_set_cc(config, bats_cc_gcc);
    bats_config_cert_file(config, argv[1]);
    bats_config_key_file(config, argv[2]);
    bats_protocol_handle_t protocol = bats_protocol_create(context, config);
    if (bats_protocol_start_listen(protocol, "127.0.0.1", port, on_listen, NULL) != bats_error_none) return 1;
    while (is_running) usleep(10000);
    bats_protocol_stop_listen(protocol);
    bats_protocol_destroy(protocol);
    bats_config_destroy(config);
    bats_context_destroy(context);
    return 0;
}
