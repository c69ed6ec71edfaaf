// The two roles of the program.
#ifndef NOCTULE_BATS_IPERF_ROLES_H
#define NOCTULE_BATS_IPERF_ROLES_H

#include "include/cpp/bats_protocol.h"
#include "options.h"
#include "report.h"

#include <atomic>

// The pair that both ends of bats_iperf have by custom; taken where it exists.
inline void use_pair(BatsConfiguration &configuration, bool is_server) {
    static const char KEY[] = "/etc/bats-protocol/server.key", CERT[] = "/etc/bats-protocol/server.cert";
    std::unique_ptr<std::FILE, int (*)(std::FILE *)> key(std::fopen(KEY, "re"), std::fclose), cert(std::fopen(CERT, "re"), std::fclose);
    if (is_server && key) configuration.SetKeyFile(KEY);
    if (cert) configuration.SetCertFile(CERT);
}

// Each gives the exit status, and ends when `is_running` does not hold any more.
int run_client(const Options &options, Report &report, IOContext &context, std::atomic<bool> &is_running);
int run_server(const Options &options, Report &report, IOContext &context, std::atomic<bool> &is_running);

#endif
