#include "report.h"

#include "noctule.h"
#include "shown.h"

#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstring>
#include <ctime>
#include <filesystem>

namespace {
std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));
std::string format(const char *pattern, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, pattern);
    std::vsnprintf(text, sizeof text, pattern, arguments);
    va_end(arguments);
    return text;
}

std::string share(int64_t lost, uint64_t total, bool is_server) {
    const double percent = total ? 100.0 * static_cast<double>(lost) / static_cast<double>(total) : 0;
    return is_server ? format("%.1f%%", percent) : format("%.0f%%", percent);
}

std::string times() {
    const auto wall = std::chrono::system_clock::now().time_since_epoch();
    const std::time_t seconds = std::chrono::duration_cast<std::chrono::seconds>(wall).count();
    std::tm parts{};
    localtime_r(&seconds, &parts);
    const auto millis = static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(wall).count() % 1000);
    const auto steady = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
    return format("[%02d:%02d:%02d %03d]  %lld.%09lld ", parts.tm_hour, parts.tm_min, parts.tm_sec, millis, static_cast<long long>(steady / 1000000000), static_cast<long long>(steady % 1000000000));
}
} // namespace

std::string Report::open(const Options &options) {
    has_times_ = options.has_times;
    if (options.log_file.empty()) return {};
    std::error_code failure;
    const auto folder = std::filesystem::path(options.log_file).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder, failure);
    log_.reset(std::fopen(options.log_file.c_str(), "ae"));
    return log_ ? std::string() : "-l " + options.log_file + ": " + std::strerror(errno);
}

void Report::line(const std::string &text) {
    std::lock_guard<std::mutex> lock(mutex_);
    const std::string whole = (has_times_ ? times() : std::string()) + noctule_bats::shown(text) + "\n";
    std::fputs(whole.c_str(), stdout);
    std::fflush(stdout);
    if (!log_) return;
    std::fputs(whole.c_str(), log_.get());
    std::fflush(log_.get());
}

void Report::error(const std::string &text) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::fprintf(stderr, "bats_iperf: %s\n", noctule_bats::shown(text).c_str());
}

void Report::version() {
    line("* Linux/Unix platform");
    line(format("BATS Iperf version: v1.0(noctule %s)  Build date: " __DATE__ " " __TIME__ " Compiler: gcc%d Release", noctule_version(), __GNUC__));
}

void Report::header(bool is_server) {
    line(std::string("[ ID] Interval           ") + (is_server ? "Received" : "Transfer") + "     Bitrate         Jitter    Lost/Total Datagrams");
}

std::string Report::amount(double value, const char *unit) {
    if (value <= 0) return format("0.00 %s", unit);
    if (value >= 1e9) return format("%.2f G%s", value / 1e9, unit);
    if (value >= 1e6) return format("%.2f M%s", value / 1e6, unit);
    return format("%.2f K%s", value / 1e3, unit);
}

void Report::interval(int stream, double begin, double end, uint64_t bytes, double rate, int64_t lost, uint64_t total, bool is_server) {
    line(format("[%2d]  %.2f-%.2f sec   %s  %s  0.000 ms   %lld/%llu (%s)", stream, begin, end, amount(static_cast<double>(bytes), "Bytes").c_str(), amount(rate, "bits/sec").c_str(),
        static_cast<long long>(lost), static_cast<unsigned long long>(total), share(lost, total, is_server).c_str()));
}

void Report::summary(int stream, uint64_t bytes, double rate, double jitter, int64_t lost, uint64_t total, bool is_server, const char *side) {
    // The times are not filled in: programs read the line as it has always been.
    line(format("[%2d]  .00-.00  sec   %s  %s  %.3f ms   %lld/%llu (%s) %s", stream, amount(static_cast<double>(bytes), "Bytes").c_str(), amount(rate, "bits/sec").c_str(), jitter,
        static_cast<long long>(lost), static_cast<unsigned long long>(total), share(lost, total, is_server).c_str(), side));
}
