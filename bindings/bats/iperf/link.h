// A connection that a thread of the client waits on.
#ifndef NOCTULE_BATS_IPERF_LINK_H
#define NOCTULE_BATS_IPERF_LINK_H

#include "include/cpp/bats_protocol.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How often a connection is tried, and how long together.
constexpr int TRIES = 4;
constexpr milliseconds TO_CONNECT{10000};

inline uint64_t monotonic_ms() { return static_cast<uint64_t>(std::chrono::duration_cast<milliseconds>(Clock::now().time_since_epoch()).count()); }
inline uint64_t wall_ms() { return static_cast<uint64_t>(std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count()); }

// Not to be destroyed before the protocol that it connects by.
class Link {
public:
    // What comes; set before `connect`.
    std::function<void(const octet *, int)> on_data;

    // Tries so often, for so long together; false: in vain.
    bool connect(BatsProtocol &protocol, const std::string &host, uint16_t port, int tries, milliseconds patience) {
        const auto end = Clock::now() + patience;
        for (int i = 0; i < tries; i++) {
            {
                std::lock_guard<std::mutex> lock(mutex_);
                is_over_ = false;
            }
            protocol.StartConnect(host, port, [this](const IBatsConnPtr &connection, const BatsConnEvent &event, const octet *data, int length, void *) { return told(connection, event, data, length); }, nullptr);
            std::unique_lock<std::mutex> lock(mutex_);
            if (!changed_.wait_until(lock, end, [this] { return is_writable_ || is_over_; })) return false;
            if (is_writable_) return true;
        }
        return false;
    }
    // Waits for room; false: the connection is over, or the time is.
    bool send(const octetVec &data, Clock::time_point end = Clock::time_point::max()) {
        for (;;) {
            if (connection_->SendData(data)) return true;
            std::unique_lock<std::mutex> lock(mutex_);
            if (is_over_ || Clock::now() >= end) return false;
            changed_.wait_for(lock, milliseconds(1));
        }
    }
    template <typename F> bool wait(milliseconds patience, F &&is_done) {
        std::unique_lock<std::mutex> lock(mutex_);
        return changed_.wait_for(lock, patience, [&] { return is_done() || is_over_; }) && is_done();
    }
    // Waits for an ALL_DATA_ACKED that comes after this call.
    bool wait_acked() {
        std::unique_lock<std::mutex> lock(mutex_);
        const uint64_t before = acked_;
        changed_.wait(lock, [&] { return acked_ > before || is_over_; });
        return acked_ > before;
    }
    // Changes what `wait` looks at.
    template <typename F> void change(F &&work) {
        std::lock_guard<std::mutex> lock(mutex_);
        work();
        changed_.notify_all();
    }
    const IBatsConnPtr &connection() const { return connection_; }
    bool is_over() {
        std::lock_guard<std::mutex> lock(mutex_);
        return is_over_;
    }

private:
    bool told(const IBatsConnPtr &connection, BatsConnEvent event, const octet *data, int length) {
        if (event == BatsConnEvent::BATS_CONNECTION_DATA_RECEIVED && on_data) on_data(data, length);
        change([&] {
            switch (event) {
            case BatsConnEvent::BATS_CONNECTION_ESTABLISHED: connection_ = connection; break;
            case BatsConnEvent::BATS_CONNECTION_WRITABLE: is_writable_ = true; break;
            case BatsConnEvent::BATS_CONNECTION_ALL_DATA_ACKED: acked_++; break;
            case BatsConnEvent::BATS_CONNECTION_FAILED:
            case BatsConnEvent::BATS_CONNECTION_TIMEOUT:
            case BatsConnEvent::BATS_CONNECTION_CLOSED:
            case BatsConnEvent::BATS_CONNECTION_SHUTDOWN_BY_PEER:
            case BatsConnEvent::BATS_CONNECTION_SEND_DATA_ERROR: is_over_ = true; break;
            default: break;
            }
        });
        return true;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    IBatsConnPtr connection_;
    bool is_writable_ = false, is_over_ = false;
    uint64_t acked_ = 0;
};

#endif
