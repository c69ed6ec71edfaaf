// The C functions, over the C++ classes. Handles are numbers in a table, so that one that was destroyed is an error and nothing worse.
#include "c_bats_api.h"

#include "iocontext.h"
#include "log.h"
#include "protocol.h"

#include <exception>

using namespace noctule_bats;

namespace {
using Context = std::shared_ptr<IOContext>;
using Config = std::shared_ptr<BatsConfiguration>;
using Net = std::shared_ptr<Connection>;

// The connections of a protocol go with it. It keeps its context, whatever the program destroys first.
struct Protocol {
    Context context;
    std::shared_ptr<ProtoImpl> impl;
    ~Protocol() { impl->end(); }
};

// Things of one kind by number. A number is never given out twice.
template <typename T> class Table {
public:
    uintptr_t add(T thing) {
        std::lock_guard<std::mutex> lock(mutex_);
        const uintptr_t number = next_;
        next_ += 16;
        things_.emplace(number, std::move(thing));
        return number;
    }
    // An empty one if there is none of this number.
    T get(uintptr_t number) {
        std::lock_guard<std::mutex> lock(mutex_);
        auto found = things_.find(number);
        return found == things_.end() ? T() : found->second;
    }
    T take(uintptr_t number) {
        std::lock_guard<std::mutex> lock(mutex_);
        auto found = things_.find(number);
        if (found == things_.end()) return T();
        T thing = std::move(found->second);
        things_.erase(found);
        return thing;
    }
    template <typename F> void remove_if(F &&is_wanted) {
        // Destroyed without the lock.
        std::vector<T> gone;
        std::lock_guard<std::mutex> lock(mutex_);
        for (auto one = things_.begin(); one != things_.end();) {
            if (is_wanted(one->second)) {
                gone.push_back(std::move(one->second));
                one = things_.erase(one);
            } else {
                ++one;
            }
        }
    }
    bool was_one(uintptr_t number) {
        std::lock_guard<std::mutex> lock(mutex_);
        return number >= FIRST && number < next_ && number % 16 == 0;
    }

private:
    // No address that a program could have.
    static constexpr uintptr_t FIRST = 16;
    std::mutex mutex_;
    std::map<uintptr_t, T> things_;
    uintptr_t next_ = FIRST;
};

// Never destroyed: callbacks may run when the process ends.
template <typename T> Table<T> &table() {
    static Table<T> *const all = new Table<T>;
    return *all;
}

template <typename T, typename H> T get(H handle) { return table<T>().get(reinterpret_cast<uintptr_t>(handle)); }
template <typename T, typename H> T take(H handle) { return table<T>().take(reinterpret_cast<uintptr_t>(handle)); }

bats_connection_handle_t handle_of(uintptr_t number) { return reinterpret_cast<bats_connection_handle_t>(number); }

// Nothing that is thrown crosses the border.
template <typename R, typename F> R guarded(R failure, F &&work) {
    try {
        return work();
    } catch (const std::exception &error) {
        log(Level::error, error.what());
        return failure;
    }
}

template <typename F> void with_config(bats_config_handle_t handle, const char *function, F &&work) {
    guarded(0, [&] {
        if (auto config = get<Config>(handle))
            work(*config);
        else
            log(Level::error, std::string(function) + ": the handle is null, was destroyed, or is none of a configuration");
        return 0;
    });
}

template <typename F> void with_text(bats_config_handle_t handle, const char *function, const char *text, F &&work) {
    if (text)
        with_config(handle, function, [&](BatsConfiguration &config) { work(config, std::string(text)); });
    else
        log(Level::error, std::string(function) + ": the text is null");
}

bool is_end(BatsConnEvent event) {
    return event == BatsConnEvent::BATS_CONNECTION_CLOSED || event == BatsConnEvent::BATS_CONNECTION_SHUTDOWN_BY_PEER ||
           event == BatsConnEvent::BATS_CONNECTION_FAILED || event == BatsConnEvent::BATS_CONNECTION_TIMEOUT;
}

// The handle is the program's until its last event is over.
ConnectionCallback wrap(bats_connection_callback_t callback, uintptr_t number) {
    return [callback, number](const IBatsConnPtr &, const BatsConnEvent &event, const octet *data, int length, void *user) {
        const bool is_consumed = callback == nullptr || callback(handle_of(number), static_cast<bats_conn_event_t>(event), data, length, user);
        if (is_end(event)) table<Net>().take(number);
        return is_consumed;
    };
}

bats_error_t unknown_connection(bats_connection_handle_t handle) {
    return table<Net>().was_one(reinterpret_cast<uintptr_t>(handle)) ? bats_error_connection_closed : bats_error_invalid_param;
}

bats_error_t refuse(const char *function, const char *why) {
    log(Level::error, std::string(function) + ": " + why);
    return bats_error_invalid_param;
}
} // namespace

extern "C" {

bats_context_handle_t bats_context_create(void) {
    return guarded<bats_context_handle_t>(nullptr, []() -> bats_context_handle_t {
        auto context = std::make_shared<IOContext>();
        if (!context->GetImpl().loop()->failure().empty()) return nullptr;
        return reinterpret_cast<bats_context_handle_t>(table<Context>().add(std::move(context)));
    });
}
void bats_context_destroy(bats_context_handle_t context) {
    if (!take<Context>(context) && context) log(Level::error, "bats_context_destroy: the handle was destroyed, or is none of a context");
}
void bats_context_set_log_level(bats_context_handle_t context, bats_log_level_t level) {
    if (get<Context>(context)) set_log_level(level);
}
void bats_context_set_signal_callback(bats_context_handle_t context, sig_callback_t callback) {
    if (auto known = get<Context>(context)) known->SetSignalCallback(callback ? SigCallback(callback) : SigCallback());
}

bats_config_handle_t bats_config_create(void) {
    return guarded<bats_config_handle_t>(nullptr, [] { return reinterpret_cast<bats_config_handle_t>(table<Config>().add(std::make_shared<BatsConfiguration>())); });
}
void bats_config_destroy(bats_config_handle_t config) {
    if (!take<Config>(config) && config) log(Level::error, "bats_config_destroy: the handle was destroyed, or is none of a configuration");
}
void bats_config_set_mode(bats_config_handle_t config, bats_transport_mode_t mode) {
    // What does not fit the type of C++ is told when it is used.
    with_config(config, __func__, [&](BatsConfiguration &c) { c.SetMode(static_cast<TransMode>(static_cast<unsigned>(mode) > 255 ? 255 : mode)); });
}
void bats_config_set_timeout(bats_config_handle_t config, int timeout) {
    with_config(config, __func__, [&](BatsConfiguration &c) { c.SetTimeout(timeout); });
}
void bats_config_set_local_addr(bats_config_handle_t config, const char *address) {
    with_text(config, __func__, address, [](BatsConfiguration &c, const std::string &text) { c.SetLocalAddress(text); });
}
void bats_config_set_local_port(bats_config_handle_t config, int port) {
    with_config(config, __func__, [&](BatsConfiguration &c) { c.SetLocalPort(port); });
}
void bats_config_set_remote_addr(bats_config_handle_t config, const char *address) {
    with_text(config, __func__, address, [](BatsConfiguration &c, const std::string &text) { c.SetRemoteAddr(text); });
}
void bats_config_set_remote_port(bats_config_handle_t config, int port) {
    with_config(config, __func__, [&](BatsConfiguration &c) { c.SetRemotePort(port); });
}
void bats_config_set_cc(bats_config_handle_t config, bats_congestion_control_t control) {
    // The numbers of C are others than those of C++.
    static const CongestionControl TABLE[] = {CongestionControl::None, CongestionControl::BBR, CongestionControl::BBRv2, CongestionControl::BBRv3, CongestionControl::GCC};
    const auto number = static_cast<unsigned>(control);
    with_config(config, __func__, [&](BatsConfiguration &c) { c.SetCC(number < 5 ? TABLE[number] : static_cast<CongestionControl>(255)); });
}
void bats_config_cert_file(bats_config_handle_t config, const char *path) {
    with_text(config, __func__, path, [](BatsConfiguration &c, const std::string &text) { c.SetCertFile(text); });
}
void bats_config_key_file(bats_config_handle_t config, const char *path) {
    with_text(config, __func__, path, [](BatsConfiguration &c, const std::string &text) { c.SetKeyFile(text); });
}
void bats_config_enable_compression(bats_config_handle_t config, int enabled) {
    with_config(config, __func__, [&](BatsConfiguration &c) { c.EnableCompression(enabled != 0); });
}
void bats_config_enable_encryption(bats_config_handle_t config, int enabled) {
    with_config(config, __func__, [&](BatsConfiguration &c) { c.EnableEncryption(enabled != 0); });
}
void bats_config_set_frame_type(bats_config_handle_t config, bats_frame_type_t type) {
    with_config(config, __func__, [&](BatsConfiguration &c) { c.SetFrameType(static_cast<FrameType>(type)); });
}

bats_protocol_handle_t bats_protocol_create(bats_context_handle_t context, bats_config_handle_t config) {
    return guarded<bats_protocol_handle_t>(nullptr, [&]() -> bats_protocol_handle_t {
        auto known = get<Context>(context);
        auto settings = get<Config>(config);
        if (!known || (config && !settings)) {
            refuse("bats_protocol_create", known ? "the configuration was destroyed, or is none" : "the context is null, was destroyed, or is none");
            return nullptr;
        }
        auto impl = std::make_shared<ProtoImpl>(known->GetImpl().loop());
        if (settings && !impl->load(settings->GetImpl())) return nullptr;
        auto protocol = std::make_shared<Protocol>();
        protocol->context = known;
        protocol->impl = std::move(impl);
        return reinterpret_cast<bats_protocol_handle_t>(table<std::shared_ptr<Protocol>>().add(std::move(protocol)));
    });
}
void bats_protocol_destroy(bats_protocol_handle_t protocol) {
    if (auto known = take<std::shared_ptr<Protocol>>(protocol))
        table<Net>().remove_if([&](const Net &connection) { return known->impl->is_owner_of(*connection); });
    else if (protocol)
        log(Level::error, "bats_protocol_destroy: the handle was destroyed, or is none of a protocol");
}

bats_error_t bats_protocol_start_connect(bats_protocol_handle_t protocol, const char *address, uint16_t port, bats_connection_callback_t callback, void *user_data) {
    return guarded(bats_error_memory, [&] {
        auto known = get<std::shared_ptr<Protocol>>(protocol);
        if (!known) return refuse("bats_protocol_start_connect", "the protocol is null, was destroyed, or is none");
        if (!address || !callback || port == 0) return refuse("bats_protocol_start_connect", !address ? "the address is null" : !callback ? "the callback is null" : "the port is 0");
        known->impl->connect_as(address, port, user_data, [callback](const Net &connection) { return wrap(callback, table<Net>().add(connection)); });
        return bats_error_none;
    });
}
bats_error_t bats_protocol_start_listen(bats_protocol_handle_t protocol, const char *address, uint16_t port, bats_listen_callback_t callback, void *user_data) {
    return guarded(bats_error_memory, [&] {
        auto known = get<std::shared_ptr<Protocol>>(protocol);
        if (!known) return refuse("bats_protocol_start_listen", "the protocol is null, was destroyed, or is none");
        if (!address || !callback) return refuse("bats_protocol_start_listen", address ? "the callback is null" : "the address is null");
        const auto told = [callback](const IBatsConnPtr &connection, const BatsListenEvent &event, void *user) {
            bats_connection_handle_t handle = nullptr;
            if (connection) handle = handle_of(table<Net>().add(std::static_pointer_cast<Connection>(connection)));
            callback(handle, static_cast<bats_listen_event_t>(event), user);
        };
        return known->impl->listen(address, port, told, user_data) ? bats_error_none : bats_error_listen_failed;
    });
}
bats_error_t bats_protocol_stop_listen(bats_protocol_handle_t protocol) {
    auto known = get<std::shared_ptr<Protocol>>(protocol);
    if (!known) return refuse("bats_protocol_stop_listen", "the protocol is null, was destroyed, or is none");
    return known->impl->stop_listening() ? bats_error_none : refuse("bats_protocol_stop_listen", "it does not listen");
}
bats_error_t bats_protocol_stop_connection(bats_protocol_handle_t protocol, bats_connection_handle_t connection) {
    auto known = get<std::shared_ptr<Protocol>>(protocol);
    if (!known) return refuse("bats_protocol_stop_connection", "the protocol is null, was destroyed, or is none");
    if (!connection) return bats_error_none;
    auto ours = get<Net>(connection);
    if (!ours) return unknown_connection(connection);
    return known->impl->stop(ours) ? bats_error_none : bats_error_invalid_param;
}

bats_error_t bats_connection_send_data(bats_connection_handle_t connection, const unsigned char *data, int length) {
    return guarded(bats_error_memory, [&] {
        auto known = get<Net>(connection);
        if (!known) return unknown_connection(connection);
        switch (known->send(data, length)) {
        case Sent::yes: return bats_error_none;
        case Sent::full: return bats_error_send_failed;
        case Sent::closed: return bats_error_connection_closed;
        case Sent::wrong: break;
        }
        return bats_error_invalid_param;
    });
}
bats_error_t bats_connection_send_file(bats_connection_handle_t connection, const char *path) {
    return guarded(bats_error_memory, [&] {
        auto known = get<Net>(connection);
        if (!known) return unknown_connection(connection);
        if (!path) return refuse("bats_connection_send_file", "the path is null");
        return known->SendFile(path) ? bats_error_none : bats_error_send_failed;
    });
}
void bats_connection_set_callback(bats_connection_handle_t connection, bats_connection_callback_t callback, void *user_data) {
    guarded(0, [&] {
        if (auto known = get<Net>(connection)) known->SetConnectionCallback(wrap(callback, reinterpret_cast<uintptr_t>(connection)), user_data);
        return 0;
    });
}
int bats_connection_is_writable(bats_connection_handle_t connection) {
    auto known = get<Net>(connection);
    return known && known->IsWritable() ? 1 : 0;
}
int bats_connection_get_ideal_buffer_length(bats_connection_handle_t connection) {
    auto known = get<Net>(connection);
    return known ? static_cast<int>(known->GetIdealBufferLength()) : 0;
}

} // extern "C"
