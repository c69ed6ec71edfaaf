#include "protocol.h"

#include "identity.h"
#include "iocontext.h"
#include "log.h"
#include "tcp.h"

#include <cerrno>
#include <sys/epoll.h>
#include <unistd.h>

using namespace noctule_bats;

namespace {
// Between attempts to accept while the process has no descriptors left.
constexpr milliseconds ACCEPT_AGAIN{200};
} // namespace

ProtoImpl::Listener::~Listener() {
    if (tcp >= 0) close(tcp);
}

bool ProtoImpl::load(const Settings &settings) {
    const std::string why = refusal(settings);
    if (why.empty())
        tell_differences(settings);
    else
        log(Level::error, why);
    std::lock_guard<std::mutex> lock(mutex_);
    settings_ = settings;
    loaded_++;
    return why.empty();
}

void ProtoImpl::remember(const std::shared_ptr<Connection> &connection) {
    std::lock_guard<std::mutex> lock(mutex_);
    // Those that are gone, now and then.
    if (connections_.size() >= 64 && (connections_.size() & (connections_.size() - 1)) == 0) {
        std::vector<std::weak_ptr<Connection>> alive;
        for (const auto &one : connections_)
            if (!one.expired()) alive.push_back(one);
        connections_.swap(alive);
    }
    connections_.push_back(connection);
}

void ProtoImpl::connect(const ConnectionCallback &callback, void *user) {
    std::string host;
    int port;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        host = settings_.remote_address;
        port = settings_.remote_port;
    }
    connect(host, port, callback, user);
}

void ProtoImpl::connect(const std::string &host, int port, const ConnectionCallback &callback, void *user) {
    connect_as(host, port, user, [&](const std::shared_ptr<Connection> &) { return callback; });
}

void ProtoImpl::connect_as(const std::string &host, int port, void *user, const std::function<ConnectionCallback(const std::shared_ptr<Connection> &)> &callback) {
    Settings settings;
    uint64_t loaded;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        settings = settings_;
        loaded = loaded_;
    }
    std::shared_ptr<Connection> connection;
    if (settings.mode == TCP)
        connection = std::make_shared<Tcp>(loop_, settings, owner_);
    else
        connection = std::make_shared<Coded>(loop_, settings, owner_);
    connection->SetConnectionCallback(callback(connection), user);
    remember(connection);
    const bool is_begun = loop_->post([impl = shared_from_this(), connection, host, port, settings, loaded] {
        if (impl->client_of_ != loaded) {
            impl->client_ = nullptr;
            impl->client_of_ = loaded;
        }
        impl->begin(connection, host, port, settings);
    });
    if (!is_begun) connection->failed(BatsConnEvent::BATS_CONNECTION_FAILED, "cannot connect to " + host + ": " + (loop_->failure().empty() ? "the IOContext is gone" : loop_->failure()));
}

void ProtoImpl::begin(const std::shared_ptr<Connection> &connection, const std::string &host, int port, const Settings &settings) {
    const auto failed = [&](const std::string &why) { connection->failed(BatsConnEvent::BATS_CONNECTION_FAILED, "cannot connect to " + host_and_port(host, static_cast<uint16_t>(port)) + ": " + why); };
    if (const std::string why = refusal(settings); !why.empty()) return failed(why);
    if (host.empty()) return failed("no address is given");
    if (port <= 0 || port > 65535) return failed("port " + std::to_string(port) + " is not between 1 and 65535");
    if (settings.mode == TCP) return std::static_pointer_cast<Tcp>(connection)->connect(host, static_cast<uint16_t>(port));
    auto key = server_key(settings);
    if (!key) return failed(key.error().words);
    if (!client_) {
        auto made = client_endpoint(*loop_, settings);
        if (!made) return failed(made.error().words);
        client_ = *std::move(made);
    }
    std::static_pointer_cast<Coded>(connection)->connect(client_, host_and_port(host, static_cast<uint16_t>(port)), *key);
}

bool ProtoImpl::listen(const ListenCallback &callback, void *user) {
    std::string host;
    int port;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        host = settings_.local_address;
        port = settings_.local_port;
    }
    return listen(host, port, callback, user);
}

bool ProtoImpl::listen(const std::string &host, int port, const ListenCallback &callback, void *user) {
    auto listener = std::make_shared<Listener>();
    if (callback) listener->callback = std::make_shared<const ListenCallback>(callback);
    listener->user = user;
    BatsListenEvent event = BatsListenEvent::BATS_LISTEN_SUCCESS;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        listener->settings = settings_;
        if (listener_) {
            event = BatsListenEvent::BATS_LISTEN_ALREADY_IN_LISTEN;
        } else if (const std::string why = open(*listener, host, port); !why.empty()) {
            log(Level::error, why);
            event = BatsListenEvent::BATS_LISTEN_FAILED;
        } else {
            listener_ = listener;
        }
    }
    const bool is_listening = event == BatsListenEvent::BATS_LISTEN_SUCCESS;
    const bool is_posted = loop_->post([impl = shared_from_this(), listener, event, is_listening] {
        impl->tell(listener, event);
        if (is_listening) impl->begin_listening(listener);
    });
    if (!is_posted) tell(listener, BatsListenEvent::BATS_LISTEN_FAILED);
    return is_listening && is_posted;
}

std::string ProtoImpl::open(Listener &listener, const std::string &host, int port) {
    const Settings &settings = listener.settings;
    const std::string where = "cannot listen at " + host_and_port(host, static_cast<uint16_t>(port)) + ": ";
    if (!loop_->failure().empty()) return where + loop_->failure();
    if (const std::string why = refusal(settings); !why.empty()) return where + why;
    if (port < 0 || port > 65535) return where + "port " + std::to_string(port) + " is not between 0 and 65535";
    const std::string address = host.empty() ? "0.0.0.0" : host;
    std::string failure;
    if (settings.mode == TCP) {
        listener.tcp = listen_tcp(address, static_cast<uint16_t>(port), failure);
        return failure;
    }
    std::string text = host_and_port(address, static_cast<uint16_t>(port));
    if (!is_numeric(address)) {
        const auto found = resolve(address, static_cast<uint16_t>(port), failure);
        if (found.empty()) return where + failure;
        text = text_of(found[0]);
    }
    auto made = server_endpoint(*loop_, settings, text);
    if (!made) return where + made.error().words;
    listener.endpoint = *std::move(made);
    listener.local = listener.endpoint->address();
    return {};
}

void ProtoImpl::tell(const SharedListener &listener, BatsListenEvent event, const IBatsConnPtr &connection) {
    if (!listener->callback) return;
    loop_->call(*owner_, "a listen callback", [&] { (*listener->callback)(connection, event, listener->user); });
}

void ProtoImpl::begin_listening(const SharedListener &listener) {
    if (listener->is_stopped) return;
    std::weak_ptr<ProtoImpl> impl = shared_from_this();
    std::weak_ptr<Listener> weak = listener;
    const auto accept = [impl, weak] {
        auto self = impl.lock();
        auto listener = weak.lock();
        if (!self || !listener || listener->is_stopped) return;
        if (listener->endpoint)
            self->accept_coded(listener);
        else
            self->accept_tcp(listener);
    };
    if (listener->endpoint) {
        listener->endpoint->on_session(accept);
        // What came before the callback was known.
        accept();
    } else {
        listener->number = loop_->watch(listener->tcp, EPOLLIN, [accept](uint32_t) { accept(); });
    }
}

void ProtoImpl::accept_coded(const SharedListener &listener) {
    while (!listener->is_stopped && listener->endpoint) {
        auto session = listener->endpoint->accept();
        if (!session) {
            if (!session.error().would_block()) {
                log(Level::error, "cannot accept a connection: " + session.error().words);
                tell(listener, BatsListenEvent::BATS_LISTEN_ACCEPTED_ERROR);
            }
            return;
        }
        auto connection = std::make_shared<Coded>(loop_, listener->settings, owner_);
        remember(connection);
        if (!connection->accept(listener->local, *std::move(session))) {
            tell(listener, BatsListenEvent::BATS_LISTEN_ACCEPTED_ERROR);
            continue;
        }
        tell(listener, BatsListenEvent::BATS_LISTEN_NEW_CONNECTION, connection);
        connection->accepted();
    }
}

void ProtoImpl::accept_tcp(const SharedListener &listener) {
    const int descriptor = accept4(listener->tcp, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0) {
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
        log(Level::error, std::string("cannot accept a connection: ") + std::strerror(errno));
        tell(listener, BatsListenEvent::BATS_LISTEN_ACCEPTED_ERROR);
        if (listener->is_stopped) return;
        // It is still waiting, and would be told again at once.
        loop_->change(listener->tcp, listener->number, 0);
        loop_->after(ACCEPT_AGAIN, [loop = loop_.get(), listener] {
            if (!listener->is_stopped) loop->change(listener->tcp, listener->number, EPOLLIN);
        });
        return;
    }
    auto connection = std::make_shared<Tcp>(loop_, listener->settings, owner_);
    remember(connection);
    connection->accept(descriptor);
    tell(listener, BatsListenEvent::BATS_LISTEN_NEW_CONNECTION, connection);
    connection->accepted();
}

bool ProtoImpl::stop_listening() {
    SharedListener listener;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        listener.swap(listener_);
    }
    if (!listener) return false;
    loop_->post([impl = shared_from_this(), listener] {
        listener->is_stopped = true;
        if (listener->tcp >= 0) {
            if (listener->number) impl->loop_->unwatch(listener->tcp, listener->number);
            close(std::exchange(listener->tcp, -1));
        }
        listener->endpoint.reset();
        impl->tell(listener, BatsListenEvent::BATS_LISTEN_STOPPED);
    });
    return true;
}

bool ProtoImpl::stop(const IBatsConnPtr &connection) {
    if (!connection) return true;
    auto ours = std::dynamic_pointer_cast<Connection>(connection);
    if (!ours || ours->owner() != owner_.get()) {
        log(Level::error, "StopConnection: the connection is one of another BatsProtocol");
        return false;
    }
    ours->stop();
    return true;
}

void ProtoImpl::end() {
    loop_->silence(*owner_);
    stop_listening();
    std::vector<std::weak_ptr<Connection>> connections;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        connections.swap(connections_);
    }
    for (const auto &one : connections)
        if (auto connection = one.lock()) connection->stop();
}

BatsProtocol::BatsProtocol(IOContext &context) : impl_(std::make_shared<ProtoImpl>(context.GetImpl().loop())), context_(context) {}
BatsProtocol::BatsProtocol(IOContext &context, const BatsConfiguration &configuration) : BatsProtocol(context) { LoadConfig(configuration); }
BatsProtocol::~BatsProtocol() { impl_->end(); }
bool BatsProtocol::LoadConfig(const BatsConfiguration &configuration) { return impl_->load(configuration.GetImpl()); }
void BatsProtocol::StartConnect(const std::string &address, uint16_t port, const ConnectionCallback &callback, void *user) { impl_->connect(address, port, callback, user); }
void BatsProtocol::StartConnect(const ConnectionCallback &callback, void *user) { impl_->connect(callback, user); }
void BatsProtocol::StopConnection(const IBatsConnPtr &connection) { impl_->stop(connection); }
void BatsProtocol::StartListen(const std::string &address, uint16_t port, const ListenCallback &callback, void *user) { impl_->listen(address, port, callback, user); }
void BatsProtocol::StartListen(const ListenCallback &callback, void *user) { impl_->listen(callback, user); }
void BatsProtocol::StopListen() { impl_->stop_listening(); }
