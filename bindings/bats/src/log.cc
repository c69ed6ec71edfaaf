#include "log.h"

#include "shown.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>

namespace noctule_bats {
namespace {
std::atomic<int> lowest{static_cast<int>(Level::warn)};
std::mutex mutex;
std::FILE *file = nullptr;
} // namespace

void set_log_level(int level) { lowest = std::clamp(level, 0, static_cast<int>(Level::error)); }

void set_log_file(const std::string &path) {
    std::FILE *opened = path.empty() ? nullptr : std::fopen(path.c_str(), "ae");
    const int why = errno;
    {
        std::lock_guard<std::mutex> lock(mutex);
        if (file) std::fclose(file);
        file = opened;
    }
    if (!path.empty() && !opened) log(Level::error, "cannot write the log to " + path + ": " + std::strerror(why) + "; it goes to standard error");
}

void log(Level level, const std::string &words) {
    if (static_cast<int>(level) < lowest) return;
    static const char *const NAMES[] = {"TRACE", "DEBUG", "INFO", "WARN", "ERROR"};
    const auto now = std::chrono::system_clock::now();
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    const int millis = static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000);
    std::tm parts{};
    localtime_r(&seconds, &parts);
    char time[32];
    std::strftime(time, sizeof time, "%F %T", &parts);
    std::lock_guard<std::mutex> lock(mutex);
    std::FILE *out = file ? file : stderr;
    std::fprintf(out, "[%s.%03d] [%s] bats: %s\n", time, millis, NAMES[static_cast<int>(level)], shown(words).c_str());
    std::fflush(out);
}

} // namespace noctule_bats
