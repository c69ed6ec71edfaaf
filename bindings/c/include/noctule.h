/* The C library of noctule. The guide is docs/guide/c.md.
 *
 * Errors are negative, 0 is success, noctule_last_error() has the words of the thread's last one.
 *
 * Nothing blocks but what says so. A call that gives WOULD_BLOCK is followed by one event when it is worth another try. After an event go on until
 * WOULD_BLOCK (or the end, or an error): the next event of that kind comes only then.
 *
 * Handles are numbers in structures, to be passed by value. To use one after it was freed gives BAD_HANDLE, and nothing worse.
 *
 * A pointer is null or points to as much as the call says: strings are UTF-8 and end with a nul, buffers have the length that is given with them in bytes.
 * Null where it is not allowed gives NULL_ARGUMENT. Nothing that is given is kept after the call, `user` and callbacks excepted.
 *
 * Made by cbindgen from bindings/c/src: change it there. */

#ifndef NOCTULE_H
#define NOCTULE_H

#include <stddef.h>
#include <stdint.h>

/**
 * The ABI of this library: goes up when something in the header changes its meaning.
 */
#define NOCTULE_ABI 1

/**
 * Bytes that hold the text of an address with its port, with its nul.
 */
#define NOCTULE_ADDRESS_TEXT 80

/**
 * Bytes that hold the text of a public key, with its nul.
 */
#define NOCTULE_KEY_TEXT 57

/**
 * Bytes that hold the text of a secret key, with its nul.
 */
#define NOCTULE_SECRET_TEXT 64

/**
 * Everything arrives, once.
 */
#define NOCTULE_MODE_BRTP 0

/**
 * A message arrives within its lifetime, or not at all.
 */
#define NOCTULE_MODE_BTP 1

/**
 * Plain encrypted datagrams without coding and congestion control; for measurements of the network itself.
 */
#define NOCTULE_MODE_TRANSPARENT 2

/**
 * Messages, handed over in the order in which they were sent.
 */
#define NOCTULE_KIND_ORDERED 0

/**
 * Messages, each handed over as soon as it is complete.
 */
#define NOCTULE_KIND_UNORDERED 1

/**
 * Bytes in order.
 */
#define NOCTULE_KIND_STREAM 2

/**
 * Goodput matters: no priority over other flows.
 */
#define NOCTULE_CLASS_BULK 0

/**
 * Latency matters: goes first, up to half of the link, and spends spare rate on repair.
 */
#define NOCTULE_CLASS_LATENCY 1

/**
 * Bytes of `noctule_outcome.reason`.
 */
#define NOCTULE_REASON_TEXT 256

/**
 * Result of a call: 0 is success, every error is negative. `noctule_last_error` has the words.
 */
enum noctule_error
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * It worked.
   */
  NOCTULE_ERROR_OK = 0,
  /**
   * Not now: an event says when to try again. No error: the words of the thread's last error stay.
   */
  NOCTULE_ERROR_WOULD_BLOCK = -1,
  /**
   * The far end has finished and everything was read. No error.
   */
  NOCTULE_ERROR_END = -2,
  /**
   * A pointer that must not be null is.
   */
  NOCTULE_ERROR_NULL_ARGUMENT = -3,
  /**
   * A value is out of range, or text is not of the form that is asked for.
   */
  NOCTULE_ERROR_INVALID_ARGUMENT = -4,
  /**
   * The handle was freed, never was one, or is one of another kind.
   */
  NOCTULE_ERROR_BAD_HANDLE = -5,
  /**
   * What is to be written does not fit into the buffer.
   */
  NOCTULE_ERROR_BUFFER_TOO_SMALL = -6,
  /**
   * The call does not fit the object or the thread, for instance bytes on a flow of messages.
   */
  NOCTULE_ERROR_MISUSE = -7,
  /**
   * The session is not connected yet.
   */
  NOCTULE_ERROR_NOT_CONNECTED = -8,
  /**
   * The session, endpoint or context is over.
   */
  NOCTULE_ERROR_CLOSED = -9,
  /**
   * The far end gave the flow up.
   */
  NOCTULE_ERROR_FLOW_RESET = -10,
  /**
   * The far end wants no more of the flow.
   */
  NOCTULE_ERROR_FLOW_STOPPED = -11,
  /**
   * The flow ended for another reason.
   */
  NOCTULE_ERROR_FLOW_CLOSED = -12,
  /**
   * The message is larger than the far end takes.
   */
  NOCTULE_ERROR_MESSAGE_TOO_LARGE = -13,
  /**
   * As many sessions, flows or links as there may be.
   */
  NOCTULE_ERROR_LIMIT = -14,
  /**
   * Another program has the UDP port.
   */
  NOCTULE_ERROR_ADDRESS_IN_USE = -15,
  /**
   * The system does not permit it.
   */
  NOCTULE_ERROR_PERMISSION = -16,
  /**
   * This host does not have the address.
   */
  NOCTULE_ERROR_ADDRESS_UNAVAILABLE = -17,
  /**
   * No answer came in time.
   */
  NOCTULE_ERROR_UNREACHABLE = -18,
  /**
   * The host says that no program has the port open.
   */
  NOCTULE_ERROR_NOBODY_LISTENS = -19,
  /**
   * This host cannot send there.
   */
  NOCTULE_ERROR_CANNOT_SEND = -20,
  /**
   * The endpoint's address is of another family.
   */
  NOCTULE_ERROR_ADDRESS_FAMILY = -21,
  /**
   * Another key than the pinned one answered.
   */
  NOCTULE_ERROR_WRONG_KEY = -22,
  /**
   * The far end does not let this key in.
   */
  NOCTULE_ERROR_NOT_AUTHORISED = -23,
  /**
   * The far end speaks another version of the protocol, or the library has another ABI than the header.
   */
  NOCTULE_ERROR_VERSION = -24,
  /**
   * The far end declined.
   */
  NOCTULE_ERROR_REFUSED = -25,
  /**
   * The host name could not be resolved.
   */
  NOCTULE_ERROR_RESOLVE = -26,
  /**
   * The connection failed for another reason.
   */
  NOCTULE_ERROR_CONNECT_FAILED = -27,
  /**
   * The operating system failed otherwise, for instance in reading a file.
   */
  NOCTULE_ERROR_SYSTEM = -28,
  /**
   * A defect of the library. The object is in an unknown state and can only be freed.
   */
  NOCTULE_ERROR_INTERNAL = -29,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum noctule_error noctule_error;
#else
typedef int32_t noctule_error;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What may happen to a handle; the numbers are those of the header.
 */
enum noctule_event_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * A session that this end opened: connected, or `error` says why not.
   */
  NOCTULE_EVENT_KIND_CONNECTED = 1,
  /**
   * A session: it is over. `noctule_session_outcome` says how.
   */
  NOCTULE_EVENT_KIND_CLOSED = 2,
  /**
   * An endpoint: a session waits for `noctule_endpoint_accept`.
   */
  NOCTULE_EVENT_KIND_SESSION = 3,
  /**
   * An endpoint: no session and no link is left, after `noctule_endpoint_notify_idle`.
   */
  NOCTULE_EVENT_KIND_IDLE = 4,
  /**
   * A session: a flow waits for `noctule_session_accept`.
   */
  NOCTULE_EVENT_KIND_FLOW = 5,
  /**
   * A session: a datagram waits for `noctule_session_recv_datagram`.
   */
  NOCTULE_EVENT_KIND_DATAGRAM = 6,
  /**
   * A flow: bytes, a message, the end or an error can be read.
   */
  NOCTULE_EVENT_KIND_READABLE = 7,
  /**
   * A flow that had no room: try again.
   */
  NOCTULE_EVENT_KIND_WRITABLE = 8,
  /**
   * A flow, after `noctule_flow_finish`: the far end has everything, or `error` says why that is not known.
   */
  NOCTULE_EVENT_KIND_FINISHED = 9,
  /**
   * A session of which `noctule_session_target_rate` had nothing new to say: it has now.
   */
  NOCTULE_EVENT_KIND_TARGET_RATE = 10,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum noctule_event_kind noctule_event_kind;
#else
typedef uint32_t noctule_event_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * The library's threads and its queue of events. 0 is none. A copy is the same context.
 */
typedef struct noctule_context {
  /**
   * Name of the context; for the library only.
   */
  uint64_t id;
} noctule_context;

/**
 * One node of the network: an identity on a UDP socket. 0 is none. A copy is the same endpoint.
 */
typedef struct noctule_endpoint {
  /**
   * Name of the endpoint; for the library only.
   */
  uint64_t id;
} noctule_endpoint;

/**
 * A session with another node. 0 is none. A copy is the same session.
 */
typedef struct noctule_session {
  /**
   * Name of the session; for the library only.
   */
  uint64_t id;
} noctule_session;

/**
 * A stream, or a flow of messages. 0 is none. A copy is the same flow.
 */
typedef struct noctule_flow {
  /**
   * Name of the flow; for the library only.
   */
  uint64_t id;
} noctule_flow;

/**
 * An event. The handles that it concerns are set, and those that they belong to; a handle may have been freed meanwhile.
 */
typedef struct noctule_event {
  /**
   * A `noctule_event_kind`.
   */
  uint32_t kind;
  /**
   * A `noctule_error`: 0, or what went wrong.
   */
  int32_t error;
  /**
   * The pointer that belongs to the handle that the event is about.
   */
  void *user;
  /**
   * The endpoint; 0 if the event concerns none.
   */
  struct noctule_endpoint endpoint;
  /**
   * The session; 0 if the event concerns none.
   */
  struct noctule_session session;
  /**
   * The flow; 0 if the event concerns none.
   */
  struct noctule_flow flow;
  /**
   * Not used in this version; 0.
   */
  uint64_t reserved[2];
} noctule_event;

/**
 * Takes an event. `event` is valid during the call; `user` is what was given with the function.
 */
typedef void (*noctule_callback)(const struct noctule_event *event, void *user);

/**
 * A secret key. 0 is none. A copy is the same identity.
 */
typedef struct noctule_identity {
  /**
   * Name of the identity; for the library only.
   */
  uint64_t id;
} noctule_identity;

/**
 * How an endpoint is made. Set it to zero and `size` to `sizeof(noctule_endpoint_options)`: what is 0 or null has its default.
 */
typedef struct noctule_endpoint_options {
  /**
   * `sizeof(noctule_endpoint_options)`.
   */
  size_t size;
  /**
   * Congestion control of what this side sends: "model" (default), "cubic", "reno", "vegas", "bbr", "gcc", "none", or "rate" with `congestion_rate`.
   */
  const char *congestion;
  /**
   * Bits per second of UDP payload, for "rate" only.
   */
  uint64_t congestion_rate;
  /**
   * Public keys (texts) that may connect; null: every key may. Not null with a count of 0: no key may.
   */
  const char *const *authorised;
  /**
   * How many there are.
   */
  size_t authorised_count;
  /**
   * Text of a key that both sides mix into the handshake ("shared-" and 56 characters, `noctule keygen --shared`); null: none.
   */
  const char *psk;
  /**
   * Idle timeout: silence of so many milliseconds ends a link. Default 30,000.
   */
  uint64_t idle_timeout;
  /**
   * An attempt to connect ends after so many milliseconds. Default 10,000.
   */
  uint64_t connect_timeout;
  /**
   * A link with sessions is never silent for longer, in milliseconds. Default: a third of the idle timeout.
   */
  uint64_t keep_alive;
  /**
   * Linger: how many milliseconds a closed session may go on delivering. Default 10,000.
   */
  uint64_t linger;
  /**
   * Largest message that this side takes, bytes. Default 16 MiB.
   */
  size_t max_message;
  /**
   * Sessions, and links that others open, at most. Default 1024.
   */
  size_t max_sessions;
  /**
   * Links of one key that others open, at most: a further one takes the place of the oldest. Default 32.
   */
  size_t max_sessions_per_key;
  /**
   * Sessions that may wait to be accepted. Default 1024.
   */
  size_t backlog;
  /**
   * Bytes to ask the system for as the socket's send buffer. Default 4 MiB.
   */
  size_t send_buffer;
  /**
   * Bytes to ask the system for as the socket's receive buffer. Default 8 MiB.
   */
  size_t recv_buffer;
  /**
   * Not 0: refuses sessions that others open. Default 0 for `noctule_endpoint_bind`; a client always refuses.
   */
  uint32_t refuse;
  /**
   * 0.
   */
  uint32_t reserved;
} noctule_endpoint_options;

/**
 * What an endpoint's socket has done. Set `size` before the call.
 */
typedef struct noctule_endpoint_stats {
  /**
   * `sizeof(noctule_endpoint_stats)`.
   */
  size_t size;
  /**
   * Datagrams handed to the socket.
   */
  uint64_t sent_datagrams;
  /**
   * Bytes of UDP payload handed to the socket.
   */
  uint64_t sent_bytes;
  /**
   * System calls that they took.
   */
  uint64_t sent_trains;
  /**
   * Datagrams taken from the socket.
   */
  uint64_t received_datagrams;
  /**
   * Bytes of UDP payload taken from the socket.
   */
  uint64_t received_bytes;
  /**
   * Times that the socket's send buffer was full.
   */
  uint64_t send_blocked;
  /**
   * Trains that the operating system refused to send.
   */
  uint64_t send_errors;
  /**
   * Errors in receiving.
   */
  uint64_t recv_errors;
  /**
   * Bytes of the socket's send buffer, as granted.
   */
  uint64_t send_buffer;
  /**
   * Bytes of the socket's receive buffer, as granted.
   */
  uint64_t recv_buffer;
  /**
   * Bytes that sessions and flows hold now.
   */
  uint64_t memory_used;
  /**
   * The most so far.
   */
  uint64_t memory_peak;
} noctule_endpoint_stats;

/**
 * How a message is sent. Set it to zero and `size` to `sizeof(noctule_message_options)`: zeros are the defaults.
 */
typedef struct noctule_message_options {
  /**
   * `sizeof(noctule_message_options)`.
   */
  size_t size;
  /**
   * Lifetime in milliseconds: later the message is worth nothing. Default: the flow's.
   */
  uint64_t lifetime;
  /**
   * 0 to 255; higher goes first among messages that have not begun. Default 0.
   */
  uint32_t priority;
  /**
   * 0.
   */
  uint32_t reserved;
} noctule_message_options;

/**
 * What is known of one direction of a flow. Set `size` before the call.
 */
typedef struct noctule_flow_stats {
  /**
   * `sizeof(noctule_flow_stats)`.
   */
  size_t size;
  /**
   * Bytes of the program.
   */
  uint64_t app_bytes;
  /**
   * Messages.
   */
  uint64_t messages;
  /**
   * Messages whose lifetime ended, or that were cancelled.
   */
  uint64_t messages_expired;
  /**
   * Source packets sent, or received and recovered.
   */
  uint64_t source_packets;
  /**
   * Coded packets for repair.
   */
  uint64_t repair_packets;
  /**
   * Source packets that were recovered by decoding.
   */
  uint64_t packets_decoded;
  /**
   * Packets that brought nothing new.
   */
  uint64_t packets_redundant;
  /**
   * Source packets sent and not known to be there.
   */
  uint64_t outstanding;
  /**
   * Bytes of memory held.
   */
  uint64_t memory;
  /**
   * Bytes given to the library that no packet carries yet, 64 more for each message; with `outstanding` 0 as well, the far end has everything.
   */
  uint64_t waiting;
} noctule_flow_stats;

/**
 * How a flow is opened. Set it to zero and `size` to `sizeof(noctule_flow_options)`: zeros are the defaults.
 */
typedef struct noctule_flow_options {
  /**
   * `sizeof(noctule_flow_options)`.
   */
  size_t size;
  /**
   * One of `NOCTULE_MODE_*`. Default BRTP.
   */
  uint32_t mode;
  /**
   * One of `NOCTULE_KIND_*`. Default ordered messages; functions that open streams set it.
   */
  uint32_t kind;
  /**
   * One of `NOCTULE_CLASS_*`. Default bulk.
   */
  uint32_t traffic_class;
  /**
   * Source packets per batch: 8, 16, 32 or 64. Default 16.
   */
  uint32_t batch_size;
  /**
   * Lifetime of a message, milliseconds, unless the message has its own. `btp` needs one of them. Default none.
   */
  uint64_t lifetime;
  /**
   * A number for the program's own use, carried to the far end; below 2^62 - 1. Default 0.
   */
  uint64_t tag;
  /**
   * Bytes that may wait here before `WOULD_BLOCK`, at most. Default: what memory allows, and 1 MiB at most.
   */
  size_t send_buffer;
  /**
   * Not 0: keeps to one route where several lead to the far end.
   */
  uint32_t one_route;
  /**
   * 0.
   */
  uint32_t reserved;
} noctule_flow_options;

/**
 * How a session ended. Set `size` before the call.
 */
typedef struct noctule_outcome {
  /**
   * `sizeof(noctule_outcome)`.
   */
  size_t size;
  /**
   * The code that a program closed with; 0 if none did.
   */
  uint64_t application_code;
  /**
   * The protocol's code (docs/spec/wire.md): 0 if a program closed.
   */
  uint32_t code;
  /**
   * 1: the far end closed, 0: this one.
   */
  uint32_t is_remote;
  /**
   * 1: all that this side wrote on `brtp` flows is known to be there. 0: not, or not known.
   */
  uint32_t all_delivered;
  /**
   * 1: all that the far end says to have sent on `brtp` flows is here. 0: not, or not known.
   */
  uint32_t all_received;
  /**
   * Why, for people, with a nul. What the far end said is in it with its control characters escaped.
   */
  char reason[NOCTULE_REASON_TEXT];
} noctule_outcome;

/**
 * What is known of a session: its first path, and sums over its flows. Set `size` before the call.
 */
typedef struct noctule_session_stats {
  /**
   * `sizeof(noctule_session_stats)`.
   */
  size_t size;
  /**
   * Smoothed round-trip time, microseconds.
   */
  uint64_t smoothed_rtt;
  /**
   * The least lately, microseconds.
   */
  uint64_t min_rtt;
  /**
   * Share of sent packets that are lost, 0 to 1.
   */
  double loss;
  /**
   * Rate at which what is sent arrives, bits per second.
   */
  double delivery_rate;
  /**
   * Rate at which packets may leave, bits per second.
   */
  double pacing_rate;
  /**
   * Congestion window, bytes.
   */
  uint64_t congestion_window;
  /**
   * Bytes in flight.
   */
  uint64_t in_flight;
  /**
   * Largest UDP payload that passes, bytes.
   */
  uint64_t mtu;
  /**
   * Paths of the link.
   */
  uint64_t paths;
  /**
   * Datagrams sent.
   */
  uint64_t sent_packets;
  /**
   * Bytes of UDP payload sent.
   */
  uint64_t sent_bytes;
  /**
   * Datagrams received.
   */
  uint64_t received_packets;
  /**
   * Bytes of UDP payload received.
   */
  uint64_t received_bytes;
  /**
   * Packets declared lost.
   */
  uint64_t lost_packets;
  /**
   * Bytes of the program that were sent.
   */
  uint64_t app_bytes_sent;
  /**
   * Bytes handed to the program.
   */
  uint64_t app_bytes_received;
  /**
   * Messages sent.
   */
  uint64_t messages_sent;
  /**
   * Messages handed to the program.
   */
  uint64_t messages_received;
  /**
   * Messages to be sent whose lifetime ended, or that were cancelled.
   */
  uint64_t messages_expired;
  /**
   * Coded packets sent for repair.
   */
  uint64_t repair_packets_sent;
  /**
   * Packets that were recovered by decoding.
   */
  uint64_t packets_decoded;
} noctule_session_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The library's version, as "0.1.0", of static storage.
 *
 * Threads: any. Blocks: never. Owns: nothing.
 */
const char *noctule_version(void);

/**
 * Makes a context: threads that run the protocol, and a queue of events. `abi` is `NOCTULE_ABI`; `threads` is the number of worker threads (1 to 256), 0 for as
 * many as there are processors, but four at most. Several contexts are independent of each other.
 *
 * Threads: any. Blocks: never. Owns: `*context` is the program's, to be freed with `noctule_context_free` or `noctule_context_free_wait`. It does not survive
 * `fork`: make contexts in the child.
 * Errors: `VERSION` (the header is of another library), `NULL_ARGUMENT`, `INVALID_ARGUMENT` (too many threads), `LIMIT`, `SYSTEM` (no threads or descriptors left).
 */
noctule_error noctule_context_new(uint32_t abi,
                                  uint32_t threads,
                                  struct noctule_context *context);

/**
 * Frees a context and every handle of its endpoints, sessions and flows. What is not delivered yet is lost; far ends hear nothing. A callback that runs goes on,
 * and none begins after it. The library's threads end soon after.
 *
 * Threads: any, callbacks too. Blocks: never. Errors: `BAD_HANDLE`.
 */
noctule_error noctule_context_free(struct noctule_context context);

/**
 * As `noctule_context_free`, but gently: sessions close as if each handle had been freed, what was written is delivered, and the library's threads and the
 * running callback have ended when it returns. At most `milliseconds` are waited for delivery. Endpoints whose handles were freed before are not waited for.
 *
 * Threads: any; in a callback it does not wait for that callback. Blocks: yes. Errors: `BAD_HANDLE`.
 */
noctule_error noctule_context_free_wait(struct noctule_context context,
                                        uint32_t milliseconds);

/**
 * The descriptor that is readable while events wait, for `poll`, `epoll` and the loops of others. When it is readable, call `noctule_poll` until it gives 0.
 * Negative: an error.
 *
 * Threads: any. Blocks: never. Owns: the descriptor is the library's: do not read, write or close it. It is closed when the context is freed.
 * Errors: `BAD_HANDLE`.
 */
int noctule_context_fd(struct noctule_context context);

/**
 * Takes up to `count` events, waiting for the first one for at most `timeout` milliseconds (0: not at all, negative: without end). Gives how many, 0 when time is
 * up or a signal was handled, or an error, which is negative.
 *
 * Threads: any but callbacks; of several that call it each event goes to one. Blocks: for `timeout` at most. Owns: `events` is the program's; nothing in it is to be
 * freed. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT`, `MISUSE` (the context calls back), `CLOSED` (freed meanwhile).
 */
int noctule_poll(struct noctule_context context,
                 struct noctule_event *events,
                 size_t count,
                 int timeout);

/**
 * Makes a thread of the library call `callback` with each event from now on, one after another; `noctule_poll` is no more to be used then. Once for a context,
 * best before its first endpoint.
 *
 * A callback may call every function of this header, and may free what the event is about. While it waits or computes, other events wait, and the network does not.
 * It must not end by an exception or `longjmp`: an exception that reaches the library ends the process.
 *
 * Threads: any. Blocks: never. Owns: `user` stays the program's, until the context is freed with `noctule_context_free_wait`.
 * Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `MISUSE` (it has one), `SYSTEM`.
 */
noctule_error noctule_context_set_callback(struct noctule_context context,
                                           noctule_callback callback,
                                           void *user);

/**
 * Waits until no callback runs. After a handle was freed and this has returned, no callback has it: what its `user` points to may go.
 *
 * Threads: any but callbacks. Blocks: until the callback that runs now has returned. Errors: `BAD_HANDLE`, `MISUSE` (called in a callback).
 */
noctule_error noctule_context_wait_callbacks(struct noctule_context context);

/**
 * Opens a UDP socket on `address` (`192.0.2.1:4242`, `[::]:4242`; port 0: the system chooses) that takes sessions of others and connects to others. `identity` 0 is
 * a fresh one; `options` null are the defaults. `SESSION` events tell of sessions that wait to be accepted.
 *
 * Threads: any. Blocks: never. Owns: `*endpoint` is the program's, to be freed with `noctule_endpoint_free`; `identity` and `options` are copied; `user` is kept.
 * Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT`, `VERSION` (newer options), `ADDRESS_IN_USE`, `PERMISSION`, `ADDRESS_UNAVAILABLE`, `LIMIT`, `SYSTEM`.
 */
noctule_error noctule_endpoint_bind(struct noctule_context context,
                                    struct noctule_identity identity,
                                    const char *address,
                                    const struct noctule_endpoint_options *options,
                                    void *user,
                                    struct noctule_endpoint *endpoint);

/**
 * As `noctule_endpoint_bind`, on a port that the system chooses, over IPv6 and IPv4 where the host has both; it only connects, and refuses sessions of others.
 *
 * Threads, blocks, owns, errors: as `noctule_endpoint_bind`.
 */
noctule_error noctule_endpoint_client(struct noctule_context context,
                                      struct noctule_identity identity,
                                      const struct noctule_endpoint_options *options,
                                      void *user,
                                      struct noctule_endpoint *endpoint);

/**
 * Writes the address that the socket is bound to; `NOCTULE_ADDRESS_TEXT` bytes hold it.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `BUFFER_TOO_SMALL`.
 */
noctule_error noctule_endpoint_address(struct noctule_endpoint endpoint, char *text, size_t capacity);

/**
 * Writes the text of the endpoint's public key; `NOCTULE_KEY_TEXT` bytes hold it.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `BUFFER_TOO_SMALL`.
 */
noctule_error noctule_endpoint_public_key(struct noctule_endpoint endpoint, char *text, size_t capacity);

/**
 * Takes the next session that another node has opened. `WOULD_BLOCK`: none waits, a `SESSION` event follows when one does. After an event take sessions until
 * `WOULD_BLOCK`: another event comes only then.
 *
 * Threads: any. Blocks: never. Owns: `*session` is the program's, to be freed with `noctule_session_free`; `user` is kept and comes with the session's events.
 * Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `MISUSE` (the endpoint refuses sessions), `CLOSED`, `LIMIT`.
 */
noctule_error noctule_endpoint_accept(struct noctule_endpoint endpoint,
                                      void *user,
                                      struct noctule_session *session);

/**
 * Begins to connect to `host` (`name:port`, `192.0.2.1:port`, `[2001:db8::1]:port`); all addresses of a name are tried. A `CONNECTED` event follows, with an error
 * if it failed, whose words are in `noctule_session_failure`. `key` is the public key that the far end must have, or "any" for whatever key answers: look at
 * `noctule_session_peer_key` then. Null is refused, so that a forgotten key is no open door.
 *
 * Threads: any. Blocks: never; the name is looked up by a thread of the library. Owns: `*session` is the program's at once, to be freed with `noctule_session_free`,
 * which gives the attempt up. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT` (the key is none), `LIMIT`.
 */
noctule_error noctule_endpoint_connect(struct noctule_endpoint endpoint,
                                       const char *host,
                                       const char *key,
                                       void *user,
                                       struct noctule_session *session);

/**
 * Asks for an `IDLE` event as soon as no session and no link is left: then all farewells are sent, and the program may end.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`.
 */
noctule_error noctule_endpoint_notify_idle(struct noctule_endpoint endpoint);

/**
 * Ends all sessions at once with this code (below 2^62), without waiting for what is undelivered, and takes no more. `reason` may be null.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `INVALID_ARGUMENT` (not UTF-8, or the code is too large).
 */
noctule_error noctule_endpoint_close(struct noctule_endpoint endpoint,
                                     uint64_t code,
                                     const char *reason);

/**
 * Fills `stats`, whose `size` is set before.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT` (size).
 */
noctule_error noctule_endpoint_get_stats(struct noctule_endpoint endpoint, struct noctule_endpoint_stats *stats);

/**
 * Frees an endpoint. Sessions that were accepted or connected live on, and the socket is closed after the last one; those that wait to be accepted are refused.
 *
 * Threads: any, callbacks too. Blocks: never. Errors: `BAD_HANDLE`.
 */
noctule_error noctule_endpoint_free(struct noctule_endpoint endpoint);

/**
 * The words of the last error that a call on this thread returned; empty if there was none. In a callback with an event that has an error, these are its words.
 *
 * Threads: any; each has its own. Blocks: never. Owns: the library owns the text, which stays until the next call on this thread that fails.
 */
const char *noctule_last_error(void);

/**
 * What an error code means in general: one line, of static storage. A number that is no error code is told as such.
 *
 * Threads: any. Blocks: never. Owns: nothing.
 */
const char *noctule_error_text(int32_t error);

/**
 * Writes as many bytes to a stream as there is room for, and gives how many. `WOULD_BLOCK`: there is none, a `WRITABLE` event follows.
 *
 * Threads: any; several that write to one stream take turns. Blocks: never. Owns: `data` is copied. Gives a negative error: `BAD_HANDLE`, `NULL_ARGUMENT`,
 * `INVALID_ARGUMENT` (length), `MISUSE` (messages, nothing goes out, or finished), `CLOSED`, `FLOW_STOPPED`, `FLOW_CLOSED`.
 */
ptrdiff_t noctule_flow_write(struct noctule_flow flow,
                             const void *data,
                             size_t length);

/**
 * Reads up to `capacity` bytes of a stream, and gives how many: 0 is the end of the stream. `WOULD_BLOCK`: nothing is there, a `READABLE` event follows. After
 * an event read until `WOULD_BLOCK`, the end or an error: another event comes only then.
 *
 * Threads: any; several that read one stream take turns. Blocks: never. Owns: the program has the buffer. Gives a negative error: `BAD_HANDLE`, `NULL_ARGUMENT`,
 * `INVALID_ARGUMENT` (no capacity), `MISUSE` (messages, or nothing comes in), `CLOSED`, `FLOW_RESET`, `FLOW_CLOSED`.
 */
ptrdiff_t noctule_flow_read(struct noctule_flow flow,
                            void *buffer,
                            size_t capacity);

/**
 * Sends a message, as a whole; `*number` is its number in the flow, from 0 (`number` may be null, as may `options`). `WOULD_BLOCK`: there is no room, nothing was
 * taken, a `WRITABLE` event follows.
 *
 * Threads: any. Blocks: never. Owns: `data` is copied. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT`, `VERSION` (newer options), `MISUSE` (a stream, an
 * accepted flow, or finished), `MESSAGE_TOO_LARGE`, `CLOSED`, `FLOW_STOPPED`, `FLOW_CLOSED`.
 */
noctule_error noctule_flow_send(struct noctule_flow flow,
                                const void *data,
                                size_t length,
                                const struct noctule_message_options *options,
                                uint64_t *number);

/**
 * Takes the next message. `*length` is its size; `*number` (null: not wanted) is its number in the flow. `BUFFER_TOO_SMALL` leaves it where it is and says its size.
 * `WOULD_BLOCK`: none is there, a `READABLE` event follows. `END`: the far end has finished. After an event receive until one of these: another comes only then.
 *
 * Threads: any. Blocks: never. Owns: the program has the buffer. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT` (capacity), `BUFFER_TOO_SMALL`, `MISUSE`,
 * `CLOSED`, `FLOW_RESET`, `FLOW_CLOSED`.
 */
noctule_error noctule_flow_recv(struct noctule_flow flow,
                                void *buffer,
                                size_t capacity,
                                size_t *length,
                                uint64_t *number);

/**
 * Withdraws a message by its number. `*withdrawn` (null: not wanted) is 1 if it will not be delivered, 0 if it was sent already.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `MISUSE` (not a flow of messages to send), `CLOSED`, `FLOW_STOPPED`, `FLOW_CLOSED`.
 */
noctule_error noctule_flow_cancel(struct noctule_flow flow,
                                  uint64_t number,
                                  uint32_t *withdrawn);

/**
 * Nothing more follows. A `FINISHED` event tells when the far end has everything, or with an error that it is not known. May be repeated: the event comes again.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `MISUSE` (nothing goes out), `CLOSED`, `FLOW_STOPPED`, `FLOW_CLOSED`.
 */
noctule_error noctule_flow_finish(struct noctule_flow flow);

/**
 * Gives up what goes out by the flow, at once, with a code (below 2^62) for the far end's program. The handle stays until it is freed.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `INVALID_ARGUMENT` (code), `MISUSE` (nothing goes out), `FLOW_CLOSED` (given up before).
 */
noctule_error noctule_flow_reset(struct noctule_flow flow,
                                 uint64_t code);

/**
 * Tells the far end that no more of the flow is wanted, with a code (below 2^62) for its program. The handle stays until it is freed.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `INVALID_ARGUMENT` (code), `MISUSE` (nothing comes in), `FLOW_CLOSED` (given up before).
 */
noctule_error noctule_flow_stop(struct noctule_flow flow,
                                uint64_t code);

/**
 * Gives one of `NOCTULE_KIND_*`, or a negative error.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`.
 */
int32_t noctule_flow_kind(struct noctule_flow flow);

/**
 * Gives the flow's direction: both (1), out (2) or in (3), or a negative error.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`.
 */
int32_t noctule_flow_direction(struct noctule_flow flow);

/**
 * Stores the number that the flow was opened with.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`.
 */
noctule_error noctule_flow_tag(struct noctule_flow flow, uint64_t *tag);

/**
 * Stores the code with which the far end has reset or stopped the flow, after a call has said that it did; 0 otherwise.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`.
 */
noctule_error noctule_flow_far_code(struct noctule_flow flow, uint64_t *code);

/**
 * Fills `stats`, whose `size` is set before, with what goes out by the flow (`outgoing` is not 0) or comes in; zeros where nothing does, and once that direction is
 * over: what it counted is in the session's sums.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT` (size).
 */
noctule_error noctule_flow_get_stats(struct noctule_flow flow,
                                     int32_t outgoing,
                                     struct noctule_flow_stats *stats);

/**
 * Changes the pointer that comes with the flow's events, from the next one on.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`.
 */
noctule_error noctule_flow_set_user(struct noctule_flow flow, void *user);

/**
 * Frees a flow. What was written is delivered, and then the far end reads its end (`noctule_flow_reset` gives it up); what was not read is not wanted any more. No
 * event of it is told after this, but a callback that runs in another thread goes on (`noctule_context_wait_callbacks`).
 *
 * Threads: any, callbacks too. Blocks: never. Errors: `BAD_HANDLE`.
 */
noctule_error noctule_flow_free(struct noctule_flow flow);

/**
 * Makes a fresh identity from the operating system's secure random source.
 *
 * Threads: any. Blocks: never. Owns: `*identity` is the program's, to be freed with `noctule_identity_free`; endpoints keep what they need.
 * Errors: `NULL_ARGUMENT`, `SYSTEM` (no randomness), `LIMIT`.
 */
noctule_error noctule_identity_generate(struct noctule_identity *identity);

/**
 * Reads an identity from its text ("secret-" and 56 characters), as `noctule keygen` writes it. White space around it is left out.
 *
 * Threads: any. Blocks: never. Owns: as `noctule_identity_generate`. Errors: `NULL_ARGUMENT`, `INVALID_ARGUMENT` (in words: what is wrong with the text), `LIMIT`.
 */
noctule_error noctule_identity_from_text(const char *text,
                                         struct noctule_identity *identity);

/**
 * Makes an identity of the 32 bytes of an X25519 secret key, which come from a secure random source.
 *
 * Threads: any. Blocks: never. Owns: as `noctule_identity_generate`; `bytes` is copied.
 * Errors: `NULL_ARGUMENT`, `INVALID_ARGUMENT` (`length` is not 32), `LIMIT`.
 */
noctule_error noctule_identity_from_bytes(const void *bytes, size_t length, struct noctule_identity *identity);

/**
 * Reads an identity from a file that only its owner can read, as `noctule keygen -o FILE` and `noctule_identity_save` make it.
 *
 * Threads: any. Blocks: for the file system. Owns: as `noctule_identity_generate`.
 * Errors: `NULL_ARGUMENT`, `SYSTEM` (it cannot be read), `PERMISSION` (not allowed, or others than its owner may read it), `INVALID_ARGUMENT` (no secret key), `LIMIT`.
 */
noctule_error noctule_identity_load(const char *path,
                                    struct noctule_identity *identity);

/**
 * Writes an identity to a new file that only its owner can read.
 *
 * Threads: any. Blocks: for the file system. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `PERMISSION`, `SYSTEM` (the file exists, or cannot be written).
 */
noctule_error noctule_identity_save(struct noctule_identity identity,
                                    const char *path);

/**
 * Writes the text of the public key, which others pin; `NOCTULE_KEY_TEXT` bytes hold it.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `BUFFER_TOO_SMALL`.
 */
noctule_error noctule_identity_public_key(struct noctule_identity identity, char *text, size_t capacity);

/**
 * Writes the text of the secret key, to be stored where no other user can read it; `NOCTULE_SECRET_TEXT` bytes hold it.
 *
 * Threads: any. Blocks: never. Owns: the program clears the buffer. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `BUFFER_TOO_SMALL`.
 */
noctule_error noctule_identity_secret_text(struct noctule_identity identity,
                                           char *text,
                                           size_t capacity);

/**
 * Says whether a text is a public key; the last error says what is wrong with it if it is not.
 *
 * Threads: any. Blocks: never. Errors: `NULL_ARGUMENT`, `INVALID_ARGUMENT`.
 */
noctule_error noctule_key_check(const char *text);

/**
 * Frees an identity; its memory is cleared once no endpoint has it.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`.
 */
noctule_error noctule_identity_free(struct noctule_identity identity);

/**
 * Writes the text of the far end's public key, which it has proved to own; `NOCTULE_KEY_TEXT` bytes hold it.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `BUFFER_TOO_SMALL`, `NOT_CONNECTED`, or why connecting failed.
 */
noctule_error noctule_session_peer_key(struct noctule_session session,
                                       char *text,
                                       size_t capacity);

/**
 * Writes the far end's address; `NOCTULE_ADDRESS_TEXT` bytes hold it. Empty if it is not known any more.
 *
 * Threads: any. Blocks: never. Errors: as `noctule_session_peer_key`.
 */
noctule_error noctule_session_address(struct noctule_session session, char *text, size_t capacity);

/**
 * Why the session did not come about: gives the error of its `CONNECTED` event and writes its words, as much as there is room for. 0 and empty text: it did.
 *
 * Threads: any. Blocks: never. Errors: those of connecting (`UNREACHABLE`, `NOBODY_LISTENS`, `WRONG_KEY`, `NOT_AUTHORISED`, `RESOLVE`, ...), `NOT_CONNECTED` (still
 * at it), `BAD_HANDLE`, `NULL_ARGUMENT`, `BUFFER_TOO_SMALL` (no room for any text).
 */
noctule_error noctule_session_failure(struct noctule_session session,
                                      char *text,
                                      size_t capacity);

/**
 * Opens a stream in both directions. It costs no round trip: the far end hears of it with the first bytes. `options` may be null.
 *
 * Threads: any. Blocks: never. Owns: `*flow` is the program's, to be freed with `noctule_flow_free`; `user` is kept and comes with the flow's events.
 * Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT`, `VERSION` (newer options), `NOT_CONNECTED`, `CLOSED`, `LIMIT`.
 */
noctule_error noctule_session_open_stream(struct noctule_session session,
                                          const struct noctule_flow_options *options,
                                          void *user,
                                          struct noctule_flow *flow);

/**
 * Opens a stream towards the far end only.
 *
 * Threads, blocks, owns, errors: as `noctule_session_open_stream`.
 */
noctule_error noctule_session_open_uni(struct noctule_session session,
                                       const struct noctule_flow_options *options,
                                       void *user,
                                       struct noctule_flow *flow);

/**
 * Opens a flow of messages towards the far end; `options` say which promise it has. Messages in the other direction are another flow, which the far end opens.
 *
 * Threads, blocks, owns, errors: as `noctule_session_open_stream`.
 */
noctule_error noctule_session_open_messages(struct noctule_session session,
                                            const struct noctule_flow_options *options,
                                            void *user,
                                            struct noctule_flow *flow);

/**
 * Takes the next flow that the far end has opened, of any kind: `noctule_flow_kind` and `noctule_flow_tag` tell which. `WOULD_BLOCK`: none waits, a `FLOW` event
 * follows when one does. After an event take flows until `WOULD_BLOCK`: another event comes only then.
 *
 * Threads: any. Blocks: never. Owns: as `noctule_session_open_stream`. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `NOT_CONNECTED`, `CLOSED` (and every flow was taken), `LIMIT`.
 */
noctule_error noctule_session_accept(struct noctule_session session,
                                     void *user,
                                     struct noctule_flow *flow);

/**
 * Sends a datagram: a message that arrives within half a second, in no order, or not at all. It may be larger than a packet. `WOULD_BLOCK`: as much waits as the
 * far end takes; no event follows, drop it or try later.
 *
 * Threads: any. Blocks: never. Owns: `data` is copied. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT`, `NOT_CONNECTED`, `CLOSED`, `MESSAGE_TOO_LARGE`.
 */
noctule_error noctule_session_send_datagram(struct noctule_session session,
                                            const void *data,
                                            size_t length);

/**
 * Takes the next datagram. `*length` is its size; `BUFFER_TOO_SMALL` leaves it where it is and says its size. `WOULD_BLOCK`: none is there, a `DATAGRAM` event
 * follows. After an event take datagrams until `WOULD_BLOCK`: another event comes only then.
 *
 * Threads: any. Blocks: never. Owns: the program has the buffer. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT`, `BUFFER_TOO_SMALL`, `NOT_CONNECTED`, `CLOSED`.
 */
noctule_error noctule_session_recv_datagram(struct noctule_session session,
                                            void *buffer,
                                            size_t capacity,
                                            size_t *length);

/**
 * Changes the congestion control of what this side sends, as in `noctule_endpoint_options`: it starts afresh. `rate` is 0 for all but "rate".
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT`, `NOT_CONNECTED`, or why connecting failed.
 */
noctule_error noctule_session_set_congestion(struct noctule_session session,
                                             const char *name,
                                             uint64_t rate);

/**
 * Writes the rate that the program should produce, in bits per second: for media, with congestion control "gcc". Headers and what repairs the mean loss are taken
 * off; all sessions with the same neighbour share it. `WOULD_BLOCK`: nothing is new since the last call, or the congestion control tells no rate; a `TARGET_RATE` event
 * follows when there is something. A rate is new when it differs by a twentieth.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `WOULD_BLOCK`, `CLOSED`, `NOT_CONNECTED`, or why connecting failed.
 */
noctule_error noctule_session_target_rate(struct noctule_session session,
                                          double *rate);

/**
 * Begins to close: what was finished on `brtp` flows is delivered first, for at most the endpoint's linger, and the far end is told `code` (below 2^62) and
 * `reason` (which may be null). A `CLOSED` event follows. The handle stays until it is freed; freed before, the close goes on.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `INVALID_ARGUMENT`, `NOT_CONNECTED` (free the handle to give the attempt up), or why connecting failed.
 */
noctule_error noctule_session_close(struct noctule_session session,
                                    uint64_t code,
                                    const char *reason);

/**
 * Ends the session at once; what is undelivered is lost. A `CLOSED` event follows.
 *
 * Threads, blocks, errors: as `noctule_session_close`.
 */
noctule_error noctule_session_abort(struct noctule_session session, uint64_t code, const char *reason);

/**
 * Says how the session ended. `WOULD_BLOCK`: it has not; a `CLOSED` event follows. `outcome->size` is set before.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT` (size), `NOT_CONNECTED`, or why connecting failed.
 */
noctule_error noctule_session_outcome(struct noctule_session session,
                                      struct noctule_outcome *outcome);

/**
 * Fills `stats`, whose `size` is set before; those of a closed session are its last.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `INVALID_ARGUMENT` (size), `NOT_CONNECTED`, or why connecting failed.
 */
noctule_error noctule_session_get_stats(struct noctule_session session,
                                        struct noctule_session_stats *stats);

/**
 * Changes the pointer that comes with the session's events, from the next one on.
 *
 * Threads: any. Blocks: never. Errors: `BAD_HANDLE`.
 */
noctule_error noctule_session_set_user(struct noctule_session session, void *user);

/**
 * Frees a session. If no flow of it has a handle either, it closes gracefully in the background; an attempt to connect is given up. No event of it is told after
 * this, but a callback that runs in another thread goes on (`noctule_context_wait_callbacks`).
 *
 * Threads: any, callbacks too. Blocks: never. Errors: `BAD_HANDLE`.
 */
noctule_error noctule_session_free(struct noctule_session session);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NOCTULE_H */
