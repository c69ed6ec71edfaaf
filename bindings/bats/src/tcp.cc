#include "tcp.h"

#include "log.h"

#include <arpa/inet.h>
#include <cerrno>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace noctule_bats {

namespace {
constexpr size_t HEAD = 4;
// Bytes that wait here before SendData says that there is no room: the kernel has as much again.
constexpr size_t ROOM = 512 << 10;
constexpr size_t READ = 128 << 10;
// After the own end, the far end has so long for its.
constexpr milliseconds LINGER{3000};

std::string name_of(int descriptor, int (*ask)(int, sockaddr *, socklen_t *)) {
    Address address;
    address.length = sizeof address.storage;
    if (ask(descriptor, reinterpret_cast<sockaddr *>(&address.storage), &address.length) != 0) return ":0";
    return text_of(address);
}

bool is_temporary(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }
} // namespace

std::string text_of(const Address &address) {
    const sockaddr_storage &storage = address.storage;
    char text[INET6_ADDRSTRLEN] = {0};
    if (storage.ss_family == AF_INET6) {
        const auto &v6 = reinterpret_cast<const sockaddr_in6 &>(storage);
        inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
        return host_and_port(text, ntohs(v6.sin6_port));
    }
    const auto &v4 = reinterpret_cast<const sockaddr_in &>(storage);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return host_and_port(text, ntohs(v4.sin_port));
}

bool is_numeric(const std::string &host) {
    in6_addr address;
    return inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

std::vector<Address> resolve(const std::string &host, uint16_t port, std::string &failure) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = is_numeric(host) ? AI_NUMERICHOST : 0;
    const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    std::vector<Address> addresses;
    if (code != 0) {
        failure = host + " could not be resolved: " + gai_strerror(code);
        return addresses;
    }
    for (const addrinfo *one = found; one; one = one->ai_next) {
        Address address;
        std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
        address.length = one->ai_addrlen;
        addresses.push_back(address);
    }
    freeaddrinfo(found);
    return addresses;
}

int listen_tcp(const std::string &host, uint16_t port, std::string &failure) {
    const auto addresses = resolve(host, port, failure);
    if (addresses.empty()) return -1;
    const int descriptor = socket(addresses[0].storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int one = 1;
    if (descriptor >= 0 && setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        bind(descriptor, reinterpret_cast<const sockaddr *>(&addresses[0].storage), addresses[0].length) == 0 && listen(descriptor, 128) == 0)
        return descriptor;
    failure = "cannot listen at " + host_and_port(host, port) + " (TCP): " + std::strerror(errno);
    if (descriptor >= 0) close(descriptor);
    return -1;
}

Tcp::~Tcp() {
    if (descriptor_ >= 0) close(descriptor_);
}

void Tcp::connect(const std::string &host, uint16_t port) {
    host_ = host_and_port(host, port);
    loop_->keep(self());
    is_connecting_ = true;
    std::weak_ptr<Tcp> weak = me();
    loop_->after(connect_timeout(settings_), [weak] {
        auto connection = weak.lock();
        if (connection && connection->state() == State::opening)
            connection->failed(BatsConnEvent::BATS_CONNECTION_TIMEOUT, "cannot connect to " + connection->host_ + ": no answer");
    });
    const auto begin = [weak, loop = loop_](std::vector<Address> addresses, const std::string &failure) {
        loop->post([weak, addresses = std::move(addresses), failure] {
            auto connection = weak.lock();
            if (!connection || connection->state() != State::opening) return;
            connection->addresses_ = addresses;
            connection->last_failure_ = failure;
            connection->try_addresses();
        });
    };
    std::string failure;
    if (is_numeric(host)) return begin(resolve(host, port, failure), failure);
    try {
        // A look-up may take long and cannot be called off: nothing waits for this thread, and it keeps nothing but the loop.
        std::thread([begin, host, port] {
            std::string failure;
            auto addresses = resolve(host, port, failure);
            begin(std::move(addresses), failure);
        }).detach();
    } catch (const std::exception &error) {
        failed(BatsConnEvent::BATS_CONNECTION_FAILED, std::string("no thread to look a name up: ") + error.what());
    }
}

void Tcp::try_addresses() {
    while (!addresses_.empty()) {
        const Address address = addresses_.front();
        addresses_.erase(addresses_.begin());
        const int descriptor = socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        int error = descriptor < 0 ? errno : 0;
        if (error == 0 && (settings_.local_port != 0 || !settings_.local_address.empty())) {
            std::string failure;
            const std::string any = address.storage.ss_family == AF_INET6 ? "::" : "0.0.0.0";
            const auto local = resolve(settings_.local_address.empty() ? any : settings_.local_address, static_cast<uint16_t>(settings_.local_port), failure);
            const int one = 1;
            setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
            if (local.empty() || bind(descriptor, reinterpret_cast<const sockaddr *>(&local[0].storage), local[0].length) != 0) error = local.empty() ? EADDRNOTAVAIL : errno;
        }
        if (error == 0 && ::connect(descriptor, reinterpret_cast<const sockaddr *>(&address.storage), address.length) != 0 && errno != EINPROGRESS) error = errno;
        if (error == 0) {
            descriptor_ = descriptor;
            std::weak_ptr<Tcp> weak = me();
            number_ = loop_->watch(descriptor, EPOLLOUT, [weak](uint32_t events) {
                if (auto connection = weak.lock()) connection->ready(events);
            });
            return;
        }
        last_failure_ = std::strerror(error);
        if (descriptor >= 0) close(descriptor);
    }
    failed(BatsConnEvent::BATS_CONNECTION_FAILED, "cannot connect to " + host_ + ": " + last_failure_);
}

void Tcp::accept(int descriptor) {
    loop_->keep(self());
    descriptor_ = descriptor;
    std::weak_ptr<Tcp> weak = me();
    number_ = loop_->watch(descriptor, 0, [weak](uint32_t events) {
        if (auto connection = weak.lock()) connection->ready(events);
    });
    begin(descriptor);
}

void Tcp::begin(int descriptor) {
    const int one = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    opened(name_of(descriptor, getsockname), name_of(descriptor, getpeername));
    arm();
}

void Tcp::ready(uint32_t events) {
    const auto keep = self();
    if (is_connecting_) {
        int error = 0;
        socklen_t length = sizeof error;
        getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &length);
        if (error != 0) {
            last_failure_ = std::strerror(error);
            close_descriptor();
            return try_addresses();
        }
        is_connecting_ = false;
        begin(descriptor_);
        tell_established();
        return;
    }
    if (events & EPOLLOUT) {
        bool is_good, has_room;
        {
            std::lock_guard<std::mutex> lock(out_mutex_);
            is_good = flush();
            has_room = is_good && wants_room_ && out_.size() - out_begin_ < ROOM / 2;
            if (has_room) wants_room_ = false;
        }
        if (has_room) room();
        after_flush();
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) && descriptor_ >= 0) {
        read_more();
        // Nothing comes after these, and the kernel goes on telling so.
        while ((events & (EPOLLHUP | EPOLLERR)) && !is_input_over_) read_more(true);
        if (is_closing_) {
            in_.clear();
            in_begin_ = 0;
            if (is_input_over_) ended(BatsConnEvent::BATS_CONNECTION_CLOSED);
            return;
        }
        if (is_input_over_) close_descriptor();
        pump();
        if (is_input_over_) far_over(BatsConnEvent::BATS_CONNECTION_SHUTDOWN_BY_PEER);
    }
    arm();
}

void Tcp::read_more(bool is_all) {
    if (in_begin_ > 0) {
        in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(in_begin_));
        in_begin_ = 0;
    }
    // More than a message waits already: first that is to be taken.
    if (in_.size() > HEAD + LARGEST_MESSAGE && !is_closing_ && !is_all) return;
    const size_t filled = in_.size();
    in_.resize(filled + READ);
    const ssize_t got = recv(descriptor_, in_.data() + filled, READ, 0);
    const int error = errno;
    in_.resize(filled + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0 || (got < 0 && (!is_temporary(error) || is_all))) is_input_over_ = true;
}

Connection::Next Tcp::next(Chunk &chunk) {
    const size_t waiting = in_.size() - in_begin_;
    if (waiting < HEAD) {
        if (!is_reading_) loop_->post([connection = me()] { connection->arm(); });
        return Next::none;
    }
    const octet *head = in_.data() + in_begin_;
    const size_t length = static_cast<size_t>(head[0]) << 24 | static_cast<size_t>(head[1]) << 16 | static_cast<size_t>(head[2]) << 8 | head[3];
    if (length == 0 || length > LARGEST_MESSAGE) {
        log(Level::error, "a message of " + std::to_string(length) + " bytes is none of this protocol: the connection is closed");
        in_begin_ = in_.size();
        is_input_over_ = true;
        loop_->post([connection = me()] { connection->far_over(BatsConnEvent::BATS_CONNECTION_SHUTDOWN_BY_PEER); });
        return Next::end;
    }
    if (waiting < HEAD + length) {
        if (!is_reading_) loop_->post([connection = me()] { connection->arm(); });
        return Next::none;
    }
    chunk = {head + HEAD, static_cast<int>(length)};
    in_begin_ += HEAD + length;
    return Next::message;
}

Sent Tcp::put(const octet *data, int length) {
    std::lock_guard<std::mutex> lock(out_mutex_);
    if (descriptor_ < 0 || !flush()) return Sent::closed;
    if (out_.size() - out_begin_ >= ROOM) {
        wants_room_ = true;
        return Sent::full;
    }
    const auto n = static_cast<uint32_t>(length);
    const octet head[HEAD] = {static_cast<octet>(n >> 24), static_cast<octet>(n >> 16), static_cast<octet>(n >> 8), static_cast<octet>(n)};
    const bool was_empty = out_.empty();
    out_.insert(out_.end(), head, head + HEAD);
    out_.insert(out_.end(), data, data + length);
    if (!flush()) return Sent::closed;
    if (was_empty && !out_.empty()) loop_->change(descriptor_, number_, EPOLLOUT | (is_reading_ ? EPOLLIN : 0u));
    return Sent::yes;
}

bool Tcp::flush() {
    while (!is_broken_ && out_begin_ < out_.size()) {
        const ssize_t sent = ::send(descriptor_, out_.data() + out_begin_, out_.size() - out_begin_, MSG_NOSIGNAL);
        if (sent < 0 && is_temporary(errno)) break;
        if (sent < 0) is_broken_ = true;
        else out_begin_ += static_cast<size_t>(sent);
    }
    if (out_begin_ == out_.size() || out_begin_ > ROOM) {
        out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(out_begin_));
        out_begin_ = 0;
    }
    return !is_broken_;
}

void Tcp::arm() {
    std::lock_guard<std::mutex> lock(out_mutex_);
    if (descriptor_ < 0 || is_connecting_) return;
    // What nobody takes is left to the kernel, whose window holds the far end back.
    is_reading_ = !is_input_over_ && (is_closing_ || in_.size() - in_begin_ <= HEAD + LARGEST_MESSAGE);
    loop_->change(descriptor_, number_, (out_.empty() ? 0u : EPOLLOUT) | (is_reading_ ? EPOLLIN : 0u));
}

bool Tcp::is_delivered(bool &is_sent) {
    std::lock_guard<std::mutex> lock(out_mutex_);
    is_sent = out_.empty();
    int unacknowledged = 0;
    return is_sent && descriptor_ >= 0 && ioctl(descriptor_, SIOCOUTQ, &unacknowledged) == 0 && unacknowledged == 0;
}

void Tcp::begin_close() {
    if (is_closing_) return;
    is_closing_ = true;
    std::weak_ptr<Tcp> weak = me();
    loop_->after(LINGER, [weak] {
        if (auto connection = weak.lock()) connection->ended(BatsConnEvent::BATS_CONNECTION_CLOSED);
    });
    after_flush();
    arm();
}

void Tcp::after_flush() {
    if (!is_closing_) return;
    bool is_broken;
    {
        std::lock_guard<std::mutex> lock(out_mutex_);
        is_broken = descriptor_ < 0 || !flush();
        // Half-closed only: close() with unread input resets the connection, which discards what is in flight.
        if (!is_broken && out_.empty()) shutdown(descriptor_, SHUT_WR);
    }
    if (is_broken) ended(BatsConnEvent::BATS_CONNECTION_CLOSED);
}

void Tcp::close_descriptor() {
    std::lock_guard<std::mutex> lock(out_mutex_);
    if (descriptor_ < 0) return;
    loop_->unwatch(descriptor_, number_);
    close(descriptor_);
    descriptor_ = -1;
}

void Tcp::release() {
    close_descriptor();
    in_ = {};
    in_begin_ = 0;
    std::lock_guard<std::mutex> lock(out_mutex_);
    out_ = {};
    out_begin_ = 0;
}

} // namespace noctule_bats
