#include "signals.h"

#include "log.h"

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unistd.h>

namespace noctule_bats {

namespace {
struct Interrupts {
    std::mutex mutex;
    std::condition_variable ran;
    std::map<const void *, std::shared_ptr<const std::function<void(int)>>> callbacks;
    const void *running = nullptr;
    std::thread::id thread;
    int reader = -1;
    bool is_installed = false;
    struct sigaction before {};
};

// Never destroyed: its thread may be in it when the process ends.
Interrupts &interrupts() {
    static Interrupts *const all = new Interrupts;
    return *all;
}

// What the handler uses.
volatile int writer = -1;

void handle(int signal) {
    const int kept = errno;
    const auto byte = static_cast<unsigned char>(signal);
    [[maybe_unused]] const ssize_t written = write(writer, &byte, 1);
    errno = kept;
}

void serve() {
    Interrupts &all = interrupts();
    unsigned char byte;
    for (;;) {
        const ssize_t got = read(all.reader, &byte, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got != 1) return;
        std::unique_lock<std::mutex> lock(all.mutex);
        const auto callbacks = all.callbacks;
        for (const auto &[owner, callback] : callbacks) {
            if (!all.callbacks.count(owner)) continue;
            all.running = owner;
            lock.unlock();
            try {
                (*callback)(byte);
            } catch (...) {
                log(Level::error, "a signal callback ended by an exception");
            }
            lock.lock();
            all.running = nullptr;
            all.ran.notify_all();
        }
    }
}

// The pipe and the thread, once.
bool begin(Interrupts &all) {
    if (all.reader >= 0) return true;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    all.reader = ends[0];
    writer = ends[1];
    try {
        std::thread thread(serve);
        all.thread = thread.get_id();
        thread.detach();
    } catch (const std::exception &) {
        close(ends[0]);
        close(ends[1]);
        all.reader = writer = -1;
        errno = EAGAIN;
        return false;
    }
    return true;
}
} // namespace

void listen_for_interrupts(const void *owner, std::function<void(int)> callback) {
    Interrupts &all = interrupts();
    std::unique_lock<std::mutex> lock(all.mutex);
    if (callback) {
        if (!begin(all)) {
            log(Level::error, std::string("cannot listen for SIGINT: ") + std::strerror(errno));
            return;
        }
        all.callbacks[owner] = std::make_shared<const std::function<void(int)>>(std::move(callback));
        if (!all.is_installed) {
            struct sigaction action {};
            action.sa_handler = handle;
            action.sa_flags = SA_RESTART;
            sigemptyset(&action.sa_mask);
            sigaction(SIGINT, &action, &all.before);
            all.is_installed = true;
        }
        return;
    }
    all.callbacks.erase(owner);
    if (all.callbacks.empty() && all.is_installed) {
        sigaction(SIGINT, &all.before, nullptr);
        all.is_installed = false;
    }
    if (std::this_thread::get_id() != all.thread) all.ran.wait(lock, [&] { return all.running != owner; });
}

} // namespace noctule_bats
