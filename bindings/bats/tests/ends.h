// Both ends of a connection over loopback, and what each was told: for behaviour.cc.
#pragma once

#include "include/cpp/bats_protocol.h"

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <netinet/in.h>
#include <set>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define CHECK(what)                                                                                                                                                \
    do {                                                                                                                                                           \
        if (!(what)) {                                                                                                                                             \
            std::cerr << __FILE__ << ":" << __LINE__ << ": " << #what << std::endl;                                                                                \
            std::_Exit(1);                                                                                                                                         \
        }                                                                                                                                                          \
    } while (0)

namespace ends {
using E = BatsConnEvent;
using L = BatsListenEvent;
using Ms = std::chrono::milliseconds;
constexpr Ms PATIENCE{20000};

inline std::string directory = "/tmp";

inline uint16_t free_port() {
    // Free for UDP and TCP alike.
    for (;;) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof address;
        const int udp = socket(AF_INET, SOCK_DGRAM, 0), tcp = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(bind(udp, reinterpret_cast<sockaddr *>(&address), length) == 0);
        getsockname(udp, reinterpret_cast<sockaddr *>(&address), &length);
        const bool is_free = bind(tcp, reinterpret_cast<sockaddr *>(&address), length) == 0;
        close(udp);
        close(tcp);
        if (is_free) return ntohs(address.sin_port);
    }
}

// One end: what it was told, and what came.
struct End {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<E> events;
    std::vector<L> listen_events;
    std::vector<std::string> messages;
    std::set<std::thread::id> threads;
    std::vector<IBatsConnPtr> connections;
    int running = 0;
    // Called besides; its answer is the callback's.
    std::function<bool(const IBatsConnPtr &, E, const octet *, int)> also;

    ConnectionCallback callback() {
        return [this](const IBatsConnPtr &connection, const E &event, const octet *data, int length, void *user) {
            CHECK(user == this);
            CHECK((event == E::BATS_CONNECTION_DATA_RECEIVED) == (data != nullptr));
            {
                std::lock_guard<std::mutex> lock(mutex);
                CHECK(running++ == 0);
            }
            const bool answer = !also || also(connection, event, data, length);
            std::lock_guard<std::mutex> lock(mutex);
            running--;
            threads.insert(std::this_thread::get_id());
            if (event == E::BATS_CONNECTION_DATA_RECEIVED && answer) messages.emplace_back(reinterpret_cast<const char *>(data), length);
            if (event == E::BATS_CONNECTION_ESTABLISHED) connections.push_back(connection);
            events.push_back(event);
            changed.notify_all();
            return answer;
        };
    }
    ListenCallback listener() {
        return [this](const IBatsConnPtr &connection, const L &event, void *user) {
            CHECK(user == this);
            CHECK((event == L::BATS_LISTEN_NEW_CONNECTION) == (connection != nullptr));
            std::lock_guard<std::mutex> lock(mutex);
            if (connection) {
                CHECK(connection->GetIdealBufferLength() > 0 && connection->GetIdealBufferLength() <= 150000);
                CHECK(connection->GetRemoteAddress() == "127.0.0.1" && connection->GetRemotePort() != 0 && connection->GetLocalPort() != 0);
                connections.push_back(connection);
                connection->SetConnectionCallback(callback(), this);
            }
            listen_events.push_back(event);
            changed.notify_all();
        };
    }
    template <typename F> void wait(F &&is_done) {
        std::unique_lock<std::mutex> lock(mutex);
        CHECK(changed.wait_for(lock, PATIENCE, is_done));
    }
    long count(E event) { return std::count(events.begin(), events.end(), event); }
    void wait_for(E event, long times = 1) {
        wait([&] { return count(event) >= times; });
    }
    void wait_for(L event) {
        wait([&] { return std::count(listen_events.begin(), listen_events.end(), event) > 0; });
    }
    IBatsConnPtr connection() {
        std::lock_guard<std::mutex> lock(mutex);
        return connections.back();
    }
};

// Keeps an end's thread in its callback for data until it is opened.
struct Gate {
    std::mutex mutex;
    std::unique_lock<std::mutex> closed{mutex};

    explicit Gate(End &end) {
        end.also = [this](const IBatsConnPtr &, E event, const octet *, int) {
            if (event == E::BATS_CONNECTION_DATA_RECEIVED) std::lock_guard<std::mutex> lock(mutex);
            return true;
        };
    }
    void open() { closed.unlock(); }
};

inline BatsConfiguration configured(int mode) {
    BatsConfiguration configuration;
    configuration.SetMode(static_cast<TransMode>(mode));
    return configuration;
}

// Both ends, connected.
struct Pair {
    uint16_t port = free_port();
    // Freed in the order of the published programs: protocols, then contexts.
    std::unique_ptr<IOContext> far_context = std::make_unique<IOContext>(), context = std::make_unique<IOContext>();
    End far, near;
    std::unique_ptr<BatsProtocol> server, client;

    explicit Pair(int mode, const BatsConfiguration *given = nullptr) {
        const BatsConfiguration configuration = given ? *given : configured(mode);
        server = std::make_unique<BatsProtocol>(*far_context, configuration);
        client = std::make_unique<BatsProtocol>(*context, configuration);
    }
    Pair &connect() {
        server->StartListen("127.0.0.1", port, far.listener(), &far);
        client->StartConnect("127.0.0.1", port, near.callback(), &near);
        near.wait_for(E::BATS_CONNECTION_WRITABLE);
        far.wait_for(L::BATS_LISTEN_NEW_CONNECTION);
        return *this;
    }
    ~Pair() {
        client.reset();
        server.reset();
        context.reset();
        far_context.reset();
    }
};

inline void send(const IBatsConnPtr &connection, const std::string &text) {
    const auto end = std::chrono::steady_clock::now() + PATIENCE;
    while (!connection->SendData(reinterpret_cast<const octet *>(text.data()), static_cast<int>(text.size()))) CHECK(std::chrono::steady_clock::now() < end);
}
} // namespace ends
