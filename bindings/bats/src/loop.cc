#include "loop.h"

#include "connection.h"
#include "log.h"

#include <cerrno>
#include <cstring>
#include <exception>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace noctule_bats {

namespace {
constexpr uint64_t WAKE = 0, NOCTULE = 1;

void add(int epoll, int descriptor, uint64_t number, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = number;
    epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}
} // namespace

std::shared_ptr<Loop> Loop::start() {
    auto loop = std::make_shared<Loop>();
    auto made = noctule::Context::make();
    if (!made) {
        loop->failure_ = made.error().words;
        return loop;
    }
    loop->noctule_ = std::make_unique<noctule::Context>(*std::move(made));
    loop->epoll_ = epoll_create1(EPOLL_CLOEXEC);
    loop->wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (loop->epoll_ < 0 || loop->wake_ < 0) {
        loop->failure_ = std::string("no descriptors for a context: ") + std::strerror(errno);
        return loop;
    }
    add(loop->epoll_, loop->wake_, WAKE, EPOLLIN);
    add(loop->epoll_, loop->noctule_->descriptor(), NOCTULE, EPOLLIN);
    loop->scratch_.resize(LARGEST_MESSAGE);
    try {
        // The thread keeps what it uses.
        loop->thread_ = std::thread([loop] {
            loop->thread_id_ = std::this_thread::get_id();
            loop->run();
        });
    } catch (const std::exception &error) {
        loop->failure_ = std::string("no thread for a context: ") + error.what();
    }
    return loop;
}

Loop::~Loop() {
    noctule_.reset();
    if (epoll_ >= 0) close(epoll_);
    if (wake_ >= 0) close(wake_);
    if (thread_.joinable()) thread_.detach();
}

bool Loop::post(std::function<void()> work) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (is_over_ || wake_ < 0) return false;
    posted_.push_back(std::move(work));
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
    return true;
}

void Loop::after(std::chrono::milliseconds delay, std::function<void()> work) { timers_.emplace(Clock::now() + delay, std::move(work)); }

uint64_t Loop::watch(int descriptor, uint32_t events, std::function<void(uint32_t)> ready) {
    const uint64_t number = next_number_++;
    watched_[number] = std::move(ready);
    add(epoll_, descriptor, number, events);
    return number;
}

void Loop::change(int descriptor, uint64_t number, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = number;
    epoll_ctl(epoll_, EPOLL_CTL_MOD, descriptor, &event);
}

void Loop::unwatch(int descriptor, uint64_t number) {
    watched_.erase(number);
    epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptor, nullptr);
}

bool Loop::call(const Owner &owner, const char *what, const std::function<void()> &callback) {
    {
        std::lock_guard<std::mutex> lock(running_mutex_);
        if (is_silent_ || owner.is_silent) return true;
        running_ = &owner;
    }
    bool is_good = true;
    try {
        callback();
    } catch (const std::exception &error) {
        is_good = false;
        log(Level::error, std::string(what) + " ended by an exception: " + error.what());
    } catch (...) {
        is_good = false;
        log(Level::error, std::string(what) + " ended by an exception");
    }
    {
        std::lock_guard<std::mutex> lock(running_mutex_);
        running_ = nullptr;
    }
    ran_.notify_all();
    return is_good;
}

void Loop::silence(Owner &owner) {
    std::unique_lock<std::mutex> lock(running_mutex_);
    owner.is_silent = true;
    if (!is_here()) ran_.wait(lock, [&] { return running_ != &owner; });
}

void Loop::end(std::chrono::milliseconds patience) {
    {
        std::lock_guard<std::mutex> lock(running_mutex_);
        is_silent_ = true;
    }
    const bool is_here = this->is_here();
    {
        std::lock_guard<std::mutex> lock(mutex_);
        deadline_ = Clock::now() + patience;
        is_ending_ = true;
    }
    post([this] {
        // Stopping one takes it from the set at times.
        const auto all = connections_;
        for (const auto &connection : all) connection->stop_here();
    });
    if (!thread_.joinable()) return;
    if (is_here)
        thread_.detach();
    else
        thread_.join();
}

bool Loop::is_done() const { return is_ending_ && (connections_.empty() || Clock::now() >= deadline_); }

int Loop::wait_time() const {
    auto next = timers_.empty() ? Clock::time_point::max() : timers_.begin()->first;
    if (is_ending_) next = std::min(next, deadline_);
    if (next == Clock::time_point::max()) return -1;
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(next - Clock::now()).count();
    return left <= 0 ? 0 : static_cast<int>(std::min<long long>(left / 1000 + 1, 60000));
}

void Loop::run_due() {
    std::deque<std::function<void()>> posted;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        posted.swap(posted_);
    }
    for (auto &work : posted) {
        work();
        // What it holds may go now, and not with the last one.
        work = nullptr;
    }
    const auto now = Clock::now();
    while (!timers_.empty() && timers_.begin()->first <= now) {
        auto work = std::move(timers_.begin()->second);
        timers_.erase(timers_.begin());
        work();
    }
}

void Loop::run() {
    epoll_event events[64];
    for (;;) {
        run_due();
        int timeout;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            if (posted_.empty() && is_done()) break;
            timeout = posted_.empty() ? wait_time() : 0;
        }
        const int count = epoll_wait(epoll_, events, 64, timeout);
        for (int i = 0; i < count; i++) {
            const uint64_t number = events[i].data.u64;
            if (number == WAKE) {
                uint64_t value;
                [[maybe_unused]] const ssize_t got = read(wake_, &value, sizeof value);
            } else if (number == NOCTULE) {
                // Its callbacks are this library's and take a moment only: what is for the program is posted.
                noctule_->poll(std::chrono::milliseconds(0));
            } else if (auto found = watched_.find(number); found != watched_.end()) {
                // It may be unwatched by what it does.
                const auto ready = found->second;
                ready(events[i].events);
            }
        }
    }
    // What work holds is destroyed without the lock: it may post.
    std::deque<std::function<void()>> undone;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        is_over_ = true;
        undone.swap(posted_);
    }
    undone.clear();
    timers_.clear();
    watched_.clear();
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
    // Waits for the farewells that are still being sent.
    noctule_->finish(std::max(std::chrono::milliseconds(0), left));
    connections_.clear();
}

} // namespace noctule_bats
