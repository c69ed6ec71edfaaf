// The command line of bats_iperf.
#ifndef NOCTULE_BATS_IPERF_OPTIONS_H
#define NOCTULE_BATS_IPERF_OPTIONS_H

#include <cstdint>
#include <string>
#include <vector>

struct Options {
    bool is_server = false;
    std::string host;
    std::string interface;
    // Of data; signals go by the port below.
    int port = 5201;
    double seconds = 10, interval = 1;
    int streams = 1;
    int mode = 0;
    // Mbit/s of each stream; 0: as fast as it goes.
    double bandwidth = 0;
    std::vector<std::string> files;
    std::string log_file, library_log;
    bool has_times = false, is_debug = false, wants_help = false;

    // Intervals of a test.
    int intervals() const { return static_cast<int>(seconds / interval + 0.999); }
};

extern const char *const USAGE;

// Why the command line makes no sense; empty: it does.
std::string parse(int argc, char **argv, Options &options);
// The first IPv4 address of an interface; empty: none.
std::string address_of(const std::string &interface);

#endif
