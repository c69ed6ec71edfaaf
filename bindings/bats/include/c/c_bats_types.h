/* Types of the BATS API in C. Written for noctule from a description of the interface; docs/guide/bats-api.md says what values come to here. */
#ifndef NOCTULE_C_BATS_TYPES_H
#define NOCTULE_C_BATS_TYPES_H

#include <stdbool.h>
#include <stdint.h>

/* In C++ every int is a value of these: programs pass numbers without a name. */
#ifdef __cplusplus
#define NOCTULE_BATS_ENUM(name) enum name : int
#define NOCTULE_BATS_END(name)
#else
#define NOCTULE_BATS_ENUM(name) typedef enum
#define NOCTULE_BATS_END(name) name
#endif

/* Names for the library, not pointers to follow. One that was destroyed is refused by every call. */
typedef struct bats_context_t *bats_context_handle_t;
typedef struct bats_protocol_t *bats_protocol_handle_t;
typedef struct bats_config_t *bats_config_handle_t;
/* The library's; nothing to destroy. */
typedef struct bats_connection_t *bats_connection_handle_t;

NOCTULE_BATS_ENUM(bats_log_level_t) {
    bats_log_level_trace = 0,
    bats_log_level_debug,
    bats_log_level_info,
    bats_log_level_warn,
    bats_log_level_error
} NOCTULE_BATS_END(bats_log_level_t);

NOCTULE_BATS_ENUM(bats_error_t) {
    bats_error_none = 0,
    bats_error_invalid_param,
    bats_error_listen_failed,
    bats_error_connect_failed,
    bats_error_accept_failed,
    bats_error_memory,
    bats_error_timeout,
    bats_error_connection_closed,
    bats_error_send_failed
} NOCTULE_BATS_END(bats_error_t);

/* 10 is plain TCP. */
NOCTULE_BATS_ENUM(bats_transport_mode_t) { bats_transport_btp = 0, bats_transport_brtp, bats_transport_brctp, bats_transport_transparent } NOCTULE_BATS_END(bats_transport_mode_t);

/* Not the numbers of C++. */
NOCTULE_BATS_ENUM(bats_congestion_control_t) { bats_cc_none = 0, bats_cc_bbr, bats_cc_bbrv2, bats_cc_bbrv3, bats_cc_gcc } NOCTULE_BATS_END(bats_congestion_control_t);

NOCTULE_BATS_ENUM(bats_frame_type_t) { bats_frame_transparent = 0, bats_frame_header_v0, bats_frame_header_v1, bats_frame_header_min } NOCTULE_BATS_END(bats_frame_type_t);

NOCTULE_BATS_ENUM(bats_conn_event_t) {
    bats_connection_none = 0,
    bats_connection_failed,
    bats_connection_established,
    bats_connection_timeout,
    bats_connection_shutdown_by_peer,
    bats_connection_writable,
    bats_connection_data_received,
    bats_connection_send_complete,
    bats_connection_send_data_error,
    bats_connection_buffer_full,
    bats_connection_closed,
    bats_connection_error,
    bats_connection_already_connected,
    bats_connection_ideal_buffer_length,
    bats_connection_all_data_acked
} NOCTULE_BATS_END(bats_conn_event_t);

NOCTULE_BATS_ENUM(bats_listen_event_t) {
    bats_listen_none = 0,
    bats_listen_new_connection,
    bats_listen_failed,
    bats_listen_success,
    bats_listen_accepted_error,
    bats_listen_already_in_listen,
    bats_listen_stopped
} NOCTULE_BATS_END(bats_listen_event_t);

#undef NOCTULE_BATS_ENUM
#undef NOCTULE_BATS_END

typedef void (*sig_callback_t)(int signal);
/* `data` is valid during the call. True: consumed; false: offered again a little later. */
typedef bool (*bats_connection_callback_t)(bats_connection_handle_t connection, bats_conn_event_t event, const unsigned char *data, int length, void *user_data);
typedef void (*bats_listen_callback_t)(bats_connection_handle_t connection, bats_listen_event_t event, void *user_data);

#endif
