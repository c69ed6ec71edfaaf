// noctule in C++17, over the C library: objects that free themselves, callbacks as std::function, errors as values.
//
// Needs noctule.h and libnoctule. No exceptions are thrown, and none may leave a callback (std::terminate). The guide is docs/guide/cpp.md.
//
// Threads: every object may be used from any thread; moving, assigning and destroying one is its owner's alone. Callbacks of one context run one after another: in
// Context::poll and Context::run, on the thread that calls these, or on a thread of the library after Context::start. A callback may do everything,
// and may destroy the object that it belongs to. Destroying an object from another thread lets a callback that runs finish; none begins afterwards.
//
// Set the callbacks of what was accepted or opened in a callback, or before the next poll(): what happens earlier is told to nobody. After Context::start, from
// another thread than the library's, set them and then try once (accept, read, write).
#ifndef NOCTULE_HPP
#define NOCTULE_HPP

#include "noctule.h"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace noctule {

/// What went wrong: a code to decide by, and words for people.
struct Error {
    noctule_error code = NOCTULE_ERROR_OK;
    std::string words;

    /// Something did.
    explicit operator bool() const noexcept { return code != NOCTULE_ERROR_OK; }
    bool operator==(noctule_error other) const noexcept { return code == other; }
    bool operator!=(noctule_error other) const noexcept { return code != other; }
    /// It is only not possible now; a callback follows.
    bool would_block() const noexcept { return code == NOCTULE_ERROR_WOULD_BLOCK; }
};

/// A value, or why there is none.
template <typename T> class Result {
public:
    Result(T value) : value_(std::move(value)) {}
    Result(Error error) : error_(std::move(error)) {}

    explicit operator bool() const noexcept { return value_.has_value(); }
    /// Only where there is one.
    T &operator*() & noexcept { return *value_; }
    T &&operator*() && noexcept { return std::move(*value_); }
    T *operator->() noexcept { return &*value_; }
    const Error &error() const noexcept { return error_; }

private:
    std::optional<T> value_;
    Error error_;
};

/// A view of bytes that another object owns.
struct Bytes {
    const void *data = nullptr;
    std::size_t size = 0;

    Bytes() = default;
    Bytes(const void *data, std::size_t size) : data(data), size(size) {}
    Bytes(std::string_view text) : data(text.data()), size(text.size()) {}
    Bytes(const std::string &text) : data(text.data()), size(text.size()) {}
    Bytes(const char *text) : data(text), size(std::strlen(text)) {}
    Bytes(const std::vector<std::uint8_t> &bytes) : data(bytes.data()), size(bytes.size()) {}
};

class Session;
class Flow;
class Endpoint;

namespace detail {

inline Error error_of(long long code) {
    if (code >= 0) return {};
    if (code == NOCTULE_ERROR_WOULD_BLOCK || code == NOCTULE_ERROR_END)
        return {static_cast<noctule_error>(code), noctule_error_text(static_cast<int32_t>(code))};
    return {static_cast<noctule_error>(code), noctule_last_error()};
}

/// What is called when something happens to a handle.
struct Callbacks {
    std::mutex mutex;
    std::function<void(const Error &)> connected, finished;
    std::function<void()> closed, session, idle, flow, datagram, readable, writable, target_rate;
};

/// A call of what is set now: it may be replaced, and its owner destroyed, while it runs.
template <typename F, typename... A> void call(Callbacks &callbacks, F Callbacks::*which, const A &...arguments) noexcept {
    F function;
    {
        std::lock_guard<std::mutex> lock(callbacks.mutex);
        function = callbacks.*which;
    }
    if (function) function(arguments...);
}

/// Handles of a context, and what is to be called.
class Registry {
public:
    std::shared_ptr<Callbacks> add(std::uint64_t id) {
        std::lock_guard<std::mutex> lock(mutex_);
        auto &entry = entries_[id];
        if (!entry) entry = std::make_shared<Callbacks>();
        return entry;
    }
    /// Makes a handle that nothing is told of before `on_connected` is known.
    template <typename F> Error add_connecting(noctule_session &made, F &&connect, std::function<void(const Error &)> on_connected) {
        auto callbacks = std::make_shared<Callbacks>();
        callbacks->connected = std::move(on_connected);
        std::lock_guard<std::mutex> lock(mutex_);
        if (Error error = error_of(connect(&made))) return error;
        entries_[made.id] = std::move(callbacks);
        return {};
    }
    void remove(std::uint64_t id) {
        std::lock_guard<std::mutex> lock(mutex_);
        entries_.erase(id);
    }

    void dispatch(const noctule_event &event) noexcept {
        const std::uint64_t id = event.flow.id ? event.flow.id : event.session.id ? event.session.id : event.endpoint.id;
        std::shared_ptr<Callbacks> callbacks;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            auto found = entries_.find(id);
            if (found == entries_.end()) return;
            callbacks = found->second;
        }
        Error error;
        if (event.error) error = {static_cast<noctule_error>(event.error), noctule_error_text(event.error)};
        switch (event.kind) {
        case NOCTULE_EVENT_KIND_CONNECTED:
            if (error) {
                char words[512];
                if (noctule_session_failure(event.session, words, sizeof words) == event.error) error.words = words;
            }
            call(*callbacks, &Callbacks::connected, error);
            break;
        case NOCTULE_EVENT_KIND_FINISHED: call(*callbacks, &Callbacks::finished, error); break;
        case NOCTULE_EVENT_KIND_CLOSED: call(*callbacks, &Callbacks::closed); break;
        case NOCTULE_EVENT_KIND_SESSION: call(*callbacks, &Callbacks::session); break;
        case NOCTULE_EVENT_KIND_IDLE: call(*callbacks, &Callbacks::idle); break;
        case NOCTULE_EVENT_KIND_FLOW: call(*callbacks, &Callbacks::flow); break;
        case NOCTULE_EVENT_KIND_DATAGRAM: call(*callbacks, &Callbacks::datagram); break;
        case NOCTULE_EVENT_KIND_READABLE: call(*callbacks, &Callbacks::readable); break;
        case NOCTULE_EVENT_KIND_WRITABLE: call(*callbacks, &Callbacks::writable); break;
        case NOCTULE_EVENT_KIND_TARGET_RATE: call(*callbacks, &Callbacks::target_rate); break;
        default: break;
        }
    }

private:
    std::mutex mutex_;
    std::unordered_map<std::uint64_t, std::shared_ptr<Callbacks>> entries_;
};

/// A handle that is freed with its owner, and can be moved.
template <typename H, noctule_error (*Free)(H)> class Owner {
public:
    Owner() = default;
    Owner(std::shared_ptr<Registry> registry, H handle) : registry_(std::move(registry)), handle_(handle), callbacks_(registry_->add(handle.id)) {}
    Owner(Owner &&other) noexcept
        : registry_(std::move(other.registry_)), handle_(std::exchange(other.handle_, H{0})), callbacks_(std::move(other.callbacks_)) {}
    Owner &operator=(Owner &&other) noexcept {
        if (this != &other) {
            reset();
            registry_ = std::move(other.registry_);
            handle_ = std::exchange(other.handle_, H{0});
            callbacks_ = std::move(other.callbacks_);
        }
        return *this;
    }
    ~Owner() { reset(); }

    /// Frees the handle now.
    void reset() noexcept {
        if (handle_.id == 0) return;
        registry_->remove(handle_.id);
        Free(std::exchange(handle_, H{0}));
        callbacks_.reset();
        registry_.reset();
    }
    /// The handle of the C library; stays this object's.
    H handle() const noexcept { return handle_; }
    explicit operator bool() const noexcept { return handle_.id != 0; }

protected:
    template <typename F> void set(F Callbacks::*which, F function) {
        if (!callbacks_) return;
        // The old one is destroyed after the lock is free: it may own this object.
        std::lock_guard<std::mutex> lock(callbacks_->mutex);
        std::swap(callbacks_.get()->*which, function);
    }
    std::shared_ptr<Registry> registry_;

private:
    H handle_{0};
    std::shared_ptr<Callbacks> callbacks_;
};

template <std::size_t Size, typename F> Result<std::string> text(F &&fill) {
    char buffer[Size];
    if (Error error = error_of(fill(buffer, Size))) return error;
    return std::string(buffer);
}
} // namespace detail

/// A secret key.
class Identity {
public:
    static Result<Identity> generate() { return make(noctule_identity_generate); }
    /// From a file as `noctule keygen` or save() makes it.
    static Result<Identity> load(const std::string &path) {
        return make([&](noctule_identity *out) { return noctule_identity_load(path.c_str(), out); });
    }
    static Result<Identity> from_text(const std::string &secret) {
        return make([&](noctule_identity *out) { return noctule_identity_from_text(secret.c_str(), out); });
    }
    static Result<Identity> from_bytes(Bytes bytes) {
        return make([&](noctule_identity *out) { return noctule_identity_from_bytes(bytes.data, bytes.size, out); });
    }
    /// To a new file that only its owner can read.
    Error save(const std::string &path) const { return detail::error_of(noctule_identity_save(handle_, path.c_str())); }
    std::string public_key() const {
        char text[NOCTULE_KEY_TEXT] = {0};
        noctule_identity_public_key(handle_, text, sizeof text);
        return text;
    }

    Identity(Identity &&other) noexcept : handle_(std::exchange(other.handle_, noctule_identity{0})) {}
    Identity &operator=(Identity &&other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Identity() {
        if (handle_.id) noctule_identity_free(handle_);
    }
    noctule_identity handle() const noexcept { return handle_; }

private:
    explicit Identity(noctule_identity handle) : handle_(handle) {}
    template <typename F> static Result<Identity> make(F &&fill) {
        noctule_identity handle{0};
        if (Error error = detail::error_of(fill(&handle))) return error;
        return Identity(handle);
    }
    noctule_identity handle_{0};
};

/// How an endpoint is made; see noctule_endpoint_options for units and defaults.
struct EndpointOptions {
    std::string congestion;
    std::uint64_t congestion_rate = 0;
    /// Without a value everybody may connect; an empty list lets nobody in.
    std::optional<std::vector<std::string>> authorised;
    std::string psk;
    std::chrono::milliseconds idle_timeout{0}, connect_timeout{0}, keep_alive{0}, linger{0};
    std::size_t max_message = 0, max_sessions = 0, max_sessions_per_key = 0, backlog = 0, send_buffer = 0, recv_buffer = 0;
};

/// How a flow is opened; see noctule_flow_options.
struct FlowOptions {
    std::uint32_t mode = NOCTULE_MODE_BRTP, kind = NOCTULE_KIND_ORDERED, traffic_class = NOCTULE_CLASS_BULK, batch_size = 0;
    std::chrono::milliseconds lifetime{0};
    std::uint64_t tag = 0;
    std::size_t send_buffer = 0;
    bool one_route = false;

    noctule_flow_options c() const {
        noctule_flow_options options = {};
        options.size = sizeof options;
        options.mode = mode;
        options.kind = kind;
        options.traffic_class = traffic_class;
        options.batch_size = batch_size;
        options.lifetime = static_cast<std::uint64_t>(lifetime.count());
        options.tag = tag;
        options.send_buffer = send_buffer;
        options.one_route = one_route;
        return options;
    }
};

/// How a message is sent.
struct MessageOptions {
    std::chrono::milliseconds lifetime{0};
    std::uint8_t priority = 0;
};

/// A message that came.
struct Message {
    std::uint64_t number;
    std::string data;
};

/// A stream, or a flow of messages. Destroying it finishes what goes out and stops what comes in.
class Flow : public detail::Owner<noctule_flow, noctule_flow_free> {
public:
    Flow() = default;

    /// Writes what there is room for, and gives how much.
    Result<std::size_t> write(Bytes bytes) { return count(noctule_flow_write(handle(), bytes.data, bytes.size)); }
    /// Reads what is there; 0 is the end.
    Result<std::size_t> read(void *buffer, std::size_t capacity) { return count(noctule_flow_read(handle(), buffer, capacity)); }
    /// Sends a message, and gives its number.
    Result<std::uint64_t> send(Bytes bytes, const MessageOptions &options = {}) {
        noctule_message_options c = {};
        c.size = sizeof c;
        c.lifetime = static_cast<std::uint64_t>(options.lifetime.count());
        c.priority = options.priority;
        std::uint64_t number = 0;
        if (Error error = detail::error_of(noctule_flow_send(handle(), bytes.data, bytes.size, &c, &number))) return error;
        return number;
    }
    /// The next message. The error END: the far end has finished.
    Result<Message> recv() {
        Message message{0, {}};
        std::size_t length = 0;
        // Most fit at once; a longer one stays until there is room for it.
        message.data.resize(2048);
        noctule_error code = noctule_flow_recv(handle(), &message.data[0], message.data.size(), &length, &message.number);
        if (code == NOCTULE_ERROR_BUFFER_TOO_SMALL) {
            message.data.resize(length);
            code = noctule_flow_recv(handle(), &message.data[0], message.data.size(), &length, &message.number);
        }
        if (Error error = detail::error_of(code)) return error;
        message.data.resize(length);
        return message;
    }
    /// Withdraws a message; whether it will not be delivered.
    Result<bool> cancel(std::uint64_t number) {
        std::uint32_t withdrawn = 0;
        if (Error error = detail::error_of(noctule_flow_cancel(handle(), number, &withdrawn))) return error;
        return withdrawn != 0;
    }
    /// Nothing more follows; on_finished tells when the far end has everything.
    Error finish() { return detail::error_of(noctule_flow_finish(handle())); }
    Error reset_flow(std::uint64_t code) { return detail::error_of(noctule_flow_reset(handle(), code)); }
    Error stop(std::uint64_t code) { return detail::error_of(noctule_flow_stop(handle(), code)); }

    bool is_stream() const { return noctule_flow_kind(handle()) == NOCTULE_KIND_STREAM; }
    std::uint64_t tag() const {
        std::uint64_t tag = 0;
        noctule_flow_tag(handle(), &tag);
        return tag;
    }
    noctule_flow_stats stats(bool outgoing) const {
        noctule_flow_stats stats = {};
        stats.size = sizeof stats;
        noctule_flow_get_stats(handle(), outgoing, &stats);
        return stats;
    }

    /// Something can be read: go on until would_block.
    void on_readable(std::function<void()> function) { set(&detail::Callbacks::readable, std::move(function)); }
    /// There is room again after would_block.
    void on_writable(std::function<void()> function) { set(&detail::Callbacks::writable, std::move(function)); }
    /// The far end has everything, or why that is not known.
    void on_finished(std::function<void(const Error &)> function) { set(&detail::Callbacks::finished, std::move(function)); }

private:
    friend class Session;
    using Owner::Owner;
    static Result<std::size_t> count(std::ptrdiff_t result) {
        if (Error error = detail::error_of(result)) return error;
        return static_cast<std::size_t>(result);
    }
};

/// A session. Destroying it and its flows closes it gracefully.
class Session : public detail::Owner<noctule_session, noctule_session_free> {
public:
    Session() = default;

    Result<Flow> open_stream(const FlowOptions &options = {}) { return flow(options, noctule_session_open_stream); }
    Result<Flow> open_uni(const FlowOptions &options = {}) { return flow(options, noctule_session_open_uni); }
    Result<Flow> open_messages(const FlowOptions &options = {}) { return flow(options, noctule_session_open_messages); }
    /// The next flow that the far end has opened.
    Result<Flow> accept() {
        noctule_flow made{0};
        if (Error error = detail::error_of(noctule_session_accept(handle(), nullptr, &made))) return error;
        return Flow(registry_, made);
    }
    Error send_datagram(Bytes bytes) { return detail::error_of(noctule_session_send_datagram(handle(), bytes.data, bytes.size)); }
    Result<std::string> recv_datagram() {
        std::string data(2048, '\0');
        std::size_t length = 0;
        noctule_error code = noctule_session_recv_datagram(handle(), &data[0], data.size(), &length);
        if (code == NOCTULE_ERROR_BUFFER_TOO_SMALL) {
            data.resize(length);
            code = noctule_session_recv_datagram(handle(), &data[0], data.size(), &length);
        }
        if (Error error = detail::error_of(code)) return error;
        data.resize(length);
        return data;
    }
    /// Begins to close; on_closed tells when it is over.
    Error close(std::uint64_t code = 0, const std::string &reason = {}) { return detail::error_of(noctule_session_close(handle(), code, reason.c_str())); }
    Error abort(std::uint64_t code = 0, const std::string &reason = {}) { return detail::error_of(noctule_session_abort(handle(), code, reason.c_str())); }
    /// How it ended; would_block before.
    Result<noctule_outcome> outcome() const {
        noctule_outcome outcome = {};
        outcome.size = sizeof outcome;
        if (Error error = detail::error_of(noctule_session_outcome(handle(), &outcome))) return error;
        return outcome;
    }
    Result<std::string> peer_key() const {
        return detail::text<NOCTULE_KEY_TEXT>([this](char *text, std::size_t size) { return noctule_session_peer_key(handle(), text, size); });
    }
    Result<std::string> address() const {
        return detail::text<NOCTULE_ADDRESS_TEXT>([this](char *text, std::size_t size) { return noctule_session_address(handle(), text, size); });
    }
    Result<noctule_session_stats> stats() const {
        noctule_session_stats stats = {};
        stats.size = sizeof stats;
        if (Error error = detail::error_of(noctule_session_get_stats(handle(), &stats))) return error;
        return stats;
    }
    Error set_congestion(const std::string &name, std::uint64_t rate = 0) { return detail::error_of(noctule_session_set_congestion(handle(), name.c_str(), rate)); }

    /// The rate that the program should produce, in bits per second, with congestion control "gcc"; would_block while nothing is new.
    Result<double> target_rate() {
        double rate = 0;
        if (Error error = detail::error_of(noctule_session_target_rate(handle(), &rate))) return error;
        return rate;
    }

    /// It is connected, or why not.
    void on_connected(std::function<void(const Error &)> function) { set(&detail::Callbacks::connected, std::move(function)); }
    void on_closed(std::function<void()> function) { set(&detail::Callbacks::closed, std::move(function)); }
    /// Flows wait: accept until would_block.
    void on_flow(std::function<void()> function) { set(&detail::Callbacks::flow, std::move(function)); }
    /// Datagrams wait: receive until would_block.
    void on_datagram(std::function<void()> function) { set(&detail::Callbacks::datagram, std::move(function)); }
    /// After target_rate said would_block: there is a new rate.
    void on_target_rate(std::function<void()> function) { set(&detail::Callbacks::target_rate, std::move(function)); }

private:
    friend class Endpoint;
    using Owner::Owner;
    using Open = noctule_error (*)(noctule_session, const noctule_flow_options *, void *, noctule_flow *);
    Result<Flow> flow(const FlowOptions &options, Open open) {
        const noctule_flow_options c = options.c();
        noctule_flow made{0};
        if (Error error = detail::error_of(open(handle(), &c, nullptr, &made))) return error;
        return Flow(registry_, made);
    }
};

/// One node. Destroying it leaves its sessions alive.
class Endpoint : public detail::Owner<noctule_endpoint, noctule_endpoint_free> {
public:
    Endpoint() = default;

    /// Begins to connect to "host:port", whose public key is `key` ("any": whatever answers). `on_connected` is called with the result.
    Result<Session> connect(const std::string &host, const std::string &key, std::function<void(const Error &)> on_connected) {
        noctule_session made{0};
        const auto connect = [&](noctule_session *out) { return noctule_endpoint_connect(handle(), host.c_str(), key.c_str(), nullptr, out); };
        if (Error error = registry_->add_connecting(made, connect, std::move(on_connected))) return error;
        return Session(registry_, made);
    }
    /// The next session that another node has opened.
    Result<Session> accept() {
        noctule_session made{0};
        if (Error error = detail::error_of(noctule_endpoint_accept(handle(), nullptr, &made))) return error;
        return Session(registry_, made);
    }
    std::string address() const {
        char text[NOCTULE_ADDRESS_TEXT] = {0};
        noctule_endpoint_address(handle(), text, sizeof text);
        return text;
    }
    std::string public_key() const {
        char text[NOCTULE_KEY_TEXT] = {0};
        noctule_endpoint_public_key(handle(), text, sizeof text);
        return text;
    }
    Error close(std::uint64_t code = 0, const std::string &reason = {}) { return detail::error_of(noctule_endpoint_close(handle(), code, reason.c_str())); }
    noctule_endpoint_stats stats() const {
        noctule_endpoint_stats stats = {};
        stats.size = sizeof stats;
        noctule_endpoint_get_stats(handle(), &stats);
        return stats;
    }
    /// Sessions wait: accept until would_block.
    void on_session(std::function<void()> function) { set(&detail::Callbacks::session, std::move(function)); }
    /// Called once no session and no link is left.
    void on_idle(std::function<void()> function) {
        set(&detail::Callbacks::idle, std::move(function));
        noctule_endpoint_notify_idle(handle());
    }

private:
    friend class Context;
    using Owner::Owner;
};

/// The library's threads and events. Make one, keep it to the end.
class Context {
public:
    /// `threads`: 0 for as many as there are processors, at most four.
    static Result<Context> make(std::uint32_t threads = 0) {
        noctule_context handle{0};
        if (Error error = detail::error_of(noctule_context_new(NOCTULE_ABI, threads, &handle))) return error;
        return Context(handle);
    }
    Context(Context &&other) noexcept : handle_(std::exchange(other.handle_, noctule_context{0})), registry_(std::move(other.registry_)) {}
    Context &operator=(Context &&other) noexcept {
        std::swap(handle_, other.handle_);
        std::swap(registry_, other.registry_);
        return *this;
    }
    /// Ends everything at once; call finish() before, to deliver what was written.
    ~Context() {
        if (handle_.id) noctule_context_free_wait(handle_, 0);
    }

    /// Frees every handle, waits until what was written is delivered, and for the library's threads.
    void finish(std::chrono::milliseconds patience) {
        if (handle_.id) noctule_context_free_wait(std::exchange(handle_, noctule_context{0}), static_cast<std::uint32_t>(patience.count()));
    }

    /// Takes sessions of others at `address`. Set on_session of what comes.
    Result<Endpoint> listen(const Identity &identity, const std::string &address, const EndpointOptions &options = {}) {
        return endpoint(options, [&](const noctule_endpoint_options *c, noctule_endpoint *out) {
            return noctule_endpoint_bind(handle_, identity.handle(), address.c_str(), c, nullptr, out);
        });
    }
    /// Only connects; with an identity of its own where others are to recognise it.
    Result<Endpoint> client(const EndpointOptions &options = {}, const Identity *identity = nullptr) {
        return endpoint(options, [&](const noctule_endpoint_options *c, noctule_endpoint *out) {
            return noctule_endpoint_client(handle_, identity ? identity->handle() : noctule_identity{0}, c, nullptr, out);
        });
    }

    /// Readable while callbacks wait for poll().
    int descriptor() const { return noctule_context_fd(handle_); }
    /// Runs the callbacks that wait, on this thread; waits for the first one for at most `timeout` (negative: without end). Gives how many events there were.
    Result<int> poll(std::chrono::milliseconds timeout = std::chrono::milliseconds(-1)) {
        noctule_event events[64];
        const int count = noctule_poll(handle_, events, 64, static_cast<int>(timeout.count()));
        if (Error error = detail::error_of(count)) return error;
        // A callback may destroy what this context is a member of.
        const std::shared_ptr<detail::Registry> registry = registry_;
        for (int i = 0; i < count; i++) registry->dispatch(events[i]);
        return count;
    }
    /// Runs callbacks on this thread until `is_done` says so after one of them.
    Error run(const std::function<bool()> &is_done) {
        while (!is_done()) {
            if (Result<int> polled = poll(); !polled) return polled.error();
        }
        return {};
    }
    /// Runs callbacks on a thread of the library from now on; poll() is no more to be used.
    Error start() {
        return detail::error_of(noctule_context_set_callback(
            handle_, [](const noctule_event *event, void *user) { static_cast<detail::Registry *>(user)->dispatch(*event); }, registry_.get()));
    }
    /// Waits until no callback runs on the library's thread.
    Error wait_callbacks() { return detail::error_of(noctule_context_wait_callbacks(handle_)); }
    noctule_context handle() const noexcept { return handle_; }

private:
    explicit Context(noctule_context handle) : handle_(handle), registry_(std::make_shared<detail::Registry>()) {}

    template <typename F> Result<Endpoint> endpoint(const EndpointOptions &options, F &&make) {
        std::vector<const char *> keys;
        noctule_endpoint_options c = {};
        c.size = sizeof c;
        c.congestion = options.congestion.empty() ? nullptr : options.congestion.c_str();
        c.congestion_rate = options.congestion_rate;
        if (options.authorised) {
            for (const std::string &key : *options.authorised) keys.push_back(key.c_str());
            c.authorised_count = keys.size();
            // Not null, even where nobody may come in.
            keys.push_back(nullptr);
            c.authorised = keys.data();
        }
        c.psk = options.psk.empty() ? nullptr : options.psk.c_str();
        c.idle_timeout = static_cast<std::uint64_t>(options.idle_timeout.count());
        c.connect_timeout = static_cast<std::uint64_t>(options.connect_timeout.count());
        c.keep_alive = static_cast<std::uint64_t>(options.keep_alive.count());
        c.linger = static_cast<std::uint64_t>(options.linger.count());
        c.max_message = options.max_message;
        c.max_sessions = options.max_sessions;
        c.max_sessions_per_key = options.max_sessions_per_key;
        c.backlog = options.backlog;
        c.send_buffer = options.send_buffer;
        c.recv_buffer = options.recv_buffer;
        noctule_endpoint made{0};
        if (Error error = detail::error_of(make(&c, &made))) return error;
        return Endpoint(registry_, made);
    }

    noctule_context handle_{0};
    std::shared_ptr<detail::Registry> registry_;
};

} // namespace noctule

#endif
