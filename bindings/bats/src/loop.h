// The thread of an IOContext: it runs callbacks, timers, and what else has to happen one after another. Packets are noctule's own threads' work, so a callback
// that blocks stops other callbacks only.
#ifndef NOCTULE_BATS_LOOP_H
#define NOCTULE_BATS_LOOP_H

#include "noctule.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace noctule_bats {

class Connection;

// What made connections and listeners: a BatsProtocol. Guarded by the loop.
struct Owner {
    bool is_silent = false;
};
using Clock = std::chrono::steady_clock;

class Loop : public std::enable_shared_from_this<Loop> {
public:
    // With its thread. Where the system has no room for it, `failure()` says why, and nothing can be begun.
    static std::shared_ptr<Loop> start();
    ~Loop();

    const std::string &failure() const { return failure_; }
    noctule::Context &noctule() { return *noctule_; }
    bool is_here() const { return std::this_thread::get_id() == thread_id_; }

    // Any thread: runs this on the loop's. False: the loop is over, and it will not run.
    bool post(std::function<void()> work);

    // Loop's thread only.
    void after(std::chrono::milliseconds delay, std::function<void()> work);
    // Calls with the events of epoll; the number names it.
    uint64_t watch(int descriptor, uint32_t events, std::function<void(uint32_t)> ready);
    // Any thread, while the descriptor is open.
    void change(int descriptor, uint64_t number, uint32_t events);
    void unwatch(int descriptor, uint64_t number);
    void keep(const std::shared_ptr<Connection> &connection) { connections_.insert(connection); }
    void drop(const std::shared_ptr<Connection> &connection) { connections_.erase(connection); }
    // A place for what is read next.
    std::vector<unsigned char> &scratch() { return scratch_; }

    // Runs a callback of `owner` with whatever it throws caught; false: it threw. Not at all once `owner` is silenced (true).
    bool call(const Owner &owner, const char *what, const std::function<void()> &callback);
    // No callback of `owner` begins from now on, and none runs when this returns, unless it is in one.
    void silence(Owner &owner);

    // Ends connections and the thread; within `patience` what was sent is delivered.
    void end(std::chrono::milliseconds patience);

private:
    void run();
    void run_due();
    int wait_time() const;
    bool is_done() const;

    std::string failure_;
    std::unique_ptr<noctule::Context> noctule_;
    int epoll_ = -1, wake_ = -1;
    std::thread thread_;
    std::atomic<std::thread::id> thread_id_{};

    std::mutex mutex_;
    std::deque<std::function<void()>> posted_;
    bool is_ending_ = false, is_over_ = false;
    Clock::time_point deadline_{};

    // Of callbacks.
    std::mutex running_mutex_;
    std::condition_variable ran_;
    const Owner *running_ = nullptr;
    bool is_silent_ = false;

    std::multimap<Clock::time_point, std::function<void()>> timers_;
    std::map<uint64_t, std::function<void(uint32_t)>> watched_;
    uint64_t next_number_ = 2;
    std::set<std::shared_ptr<Connection>> connections_;
    std::vector<unsigned char> scratch_;
};

} // namespace noctule_bats

#endif
