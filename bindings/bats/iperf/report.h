// The lines of bats_iperf, as programs read them.
#ifndef NOCTULE_BATS_IPERF_REPORT_H
#define NOCTULE_BATS_IPERF_REPORT_H

#include "options.h"

#include <cstdio>
#include <memory>
#include <mutex>

class Report {
public:
    // Why the log cannot be written; empty: it can.
    std::string open(const Options &options);

    // A line to standard output and the log.
    void line(const std::string &text);
    void version();
    void rule() { line(std::string(59, '-')); }
    void header(bool is_server);
    // `begin` and `end` in seconds; bits per second; lost may be negative where messages came late.
    void interval(int stream, double begin, double end, uint64_t bytes, double rate, int64_t lost, uint64_t total, bool is_server);
    void summary(int stream, uint64_t bytes, double rate, double jitter, int64_t lost, uint64_t total, bool is_server, const char *side);
    // What went wrong, to standard error.
    void error(const std::string &text);

    // In units of powers of ten: "1.03 GBytes", "8.22 Gbits/sec".
    static std::string amount(double value, const char *unit);

private:
    std::mutex mutex_;
    std::unique_ptr<std::FILE, int (*)(std::FILE *)> log_{nullptr, std::fclose};
    bool has_times_ = false;
};

#endif
