/* The BATS API in C. Every function may be called from any thread, callbacks included. Callbacks of one context run one after another on its thread.
 * What cannot be done is in the log, in words. */
#ifndef NOCTULE_C_BATS_API_H
#define NOCTULE_C_BATS_API_H

#include "c_bats_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Null: no memory, threads or descriptors. To be destroyed after its protocols. */
bats_context_handle_t bats_context_create(void);
/* Delivers what was sent, at most two seconds long; no callback runs afterwards. */
void bats_context_destroy(bats_context_handle_t context);
void bats_context_set_log_level(bats_context_handle_t context, bats_log_level_t level);
/* SIGINT is told there instead of ending the process. Null gives it back. */
void bats_context_set_signal_callback(bats_context_handle_t context, sig_callback_t callback);

bats_config_handle_t bats_config_create(void);
void bats_config_destroy(bats_config_handle_t config);
void bats_config_set_mode(bats_config_handle_t config, bats_transport_mode_t mode);
/* Milliseconds; below 1000 the defaults. */
void bats_config_set_timeout(bats_config_handle_t config, int timeout);
void bats_config_set_local_addr(bats_config_handle_t config, const char *address);
void bats_config_set_local_port(bats_config_handle_t config, int port);
void bats_config_set_remote_addr(bats_config_handle_t config, const char *address);
void bats_config_set_remote_port(bats_config_handle_t config, int port);
void bats_config_set_cc(bats_config_handle_t config, bats_congestion_control_t control);
void bats_config_cert_file(bats_config_handle_t config, const char *path);
void bats_config_key_file(bats_config_handle_t config, const char *path);
void bats_config_enable_compression(bats_config_handle_t config, int enabled);
void bats_config_enable_encryption(bats_config_handle_t config, int enabled);
void bats_config_set_frame_type(bats_config_handle_t config, bats_frame_type_t type);

/* `config` may be null for the defaults; it is copied. Null: a bad handle, or a configuration that cannot be had. */
bats_protocol_handle_t bats_protocol_create(bats_context_handle_t context, bats_config_handle_t config);
void bats_protocol_destroy(bats_protocol_handle_t protocol);
/* invalid_param: null, port 0, or a bad handle. Whatever else fails is told to the callback. */
bats_error_t bats_protocol_start_connect(bats_protocol_handle_t protocol, const char *address, uint16_t port, bats_connection_callback_t callback, void *user_data);
/* listen_failed: told to the callback, too. */
bats_error_t bats_protocol_start_listen(bats_protocol_handle_t protocol, const char *address, uint16_t port, bats_listen_callback_t callback, void *user_data);
bats_error_t bats_protocol_stop_listen(bats_protocol_handle_t protocol);
bats_error_t bats_protocol_stop_connection(bats_protocol_handle_t protocol, bats_connection_handle_t connection);

/* invalid_param: null, no bytes, or more than the ideal length. send_failed: full, bats_connection_writable follows. */
bats_error_t bats_connection_send_data(bats_connection_handle_t connection, const unsigned char *data, int length);
/* send_failed: not a reliable mode, the file cannot be read, or another file is being sent. */
bats_error_t bats_connection_send_file(bats_connection_handle_t connection, const char *path);
void bats_connection_set_callback(bats_connection_handle_t connection, bats_connection_callback_t callback, void *user_data);
/* 1 or 0; 0 when it is closed. */
int bats_connection_is_writable(bats_connection_handle_t connection);
/* Bytes; 0 for a bad handle. */
int bats_connection_get_ideal_buffer_length(bats_connection_handle_t connection);

#ifdef __cplusplus
}
#endif

#endif
