#include "options.h"

#include <arpa/inet.h>
#include <cstdlib>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <set>

const char *const USAGE =
    "usage: bats_iperf -s -I INTERFACE [-p PORT] [-l LOG]\n"
    "       bats_iperf -c HOST [-p PORT] [-t SECONDS] [-i SECONDS] [-P STREAMS] [-m MODE] [-b MBIT/S] [-f FILE...] [-l LOG]\n"
    "  -s            server\n"
    "  -c HOST       client\n"
    "  -I INTERFACE  server: its first IPv4 address is listened at; lo and loopback are 127.0.0.1\n"
    "  -p PORT       port of the data (5201); signals go by TCP to the port below\n"
    "  -t SECONDS    length of the test (10)\n"
    "  -i SECONDS    between two lines (1)\n"
    "  -P STREAMS    streams (1, at most 33)\n"
    "  -m MODE       0 BTP, 1 BRTP, 2 BRCTP, 3 TRANSPARENT, 10 TCP (0)\n"
    "  -b MBIT/S     rate of a stream (as fast as it goes)\n"
    "  -f FILE...    sends files instead: at most 10, mode 1 or 2, at least as many as streams\n"
    "  -l LOG        appends the report to a file\n"
    "  -L PATH       where the library's log goes\n"
    "  -T            the time before each line\n"
    "  -d            debugging: the library's log in detail, no progress bars\n"
    "  -h            this text\n";

namespace {
// At most so many are described by a summary of 1100 bytes.
constexpr int MOST_STREAMS = 33;
constexpr size_t MOST_FILES = 10;

bool number(const std::string &text, double least, double most, double &value) {
    char *end = nullptr;
    const double parsed = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(parsed >= least && parsed <= most)) return false;
    value = parsed;
    return true;
}

std::string check(const Options &options, bool has_bandwidth) {
    if (options.is_server == !options.host.empty()) return options.is_server ? "-s and -c exclude each other" : "-s or -c HOST is needed";
    if (options.is_server) {
        if (options.interface.empty()) return "-s needs -I INTERFACE";
        if (!options.files.empty()) return "-f is for clients";
        if (has_bandwidth) return "-b is for clients";
        return {};
    }
    if (!options.interface.empty()) return "-I is for servers";
    if (options.interval > options.seconds) return "-i is longer than -t";
    if (options.mode == 11 || options.mode == 12) return "-m 11 (UDP) and 12 (QUIC) are not built: use 3 (TRANSPARENT) for datagrams, 10 (TCP) to compare with";
    if (options.mode > 3 && options.mode != 10) return "-m " + std::to_string(options.mode) + " is none of 0 BTP, 1 BRTP, 2 BRCTP, 3 TRANSPARENT, 10 TCP";
    if (options.files.empty()) return {};
    if (options.mode != 1 && options.mode != 2) return "-f needs -m 1 or -m 2";
    if (options.files.size() > MOST_FILES) return "-f takes at most 10 files";
    if (options.files.size() < static_cast<size_t>(options.streams)) return "-P: more streams than files";
    return {};
}
} // namespace

std::string parse(int argc, char **argv, Options &options) {
    static const std::set<std::string> FLAGS = {"-s", "-T", "-d", "-h", "-r", "-C"}, VALUES = {"-c", "-I", "-p", "-t", "-i", "-P", "-m", "-b", "-f", "-l", "-L"};
    bool has_bandwidth = false, has_file = false;
    for (int i = 1; i < argc; i++) {
        const std::string word = argv[i];
        if (word == "-r") return "-r: a server that sends is not built; start the client at the other end";
        if (word == "-C") return "-C: compression is not built; compress the files before";
        if (word == "-s") options.is_server = true;
        else if (word == "-T") options.has_times = true;
        else if (word == "-d") options.is_debug = true;
        else if (word == "-h") options.wants_help = true;
        else if (VALUES.count(word) == 0) {
            // After -f every further word that is no option is a file.
            if (!has_file || word[0] == '-') return word + ": unknown option";
            options.files.push_back(word);
        } else {
            if (i + 1 >= argc) return word + " needs a value";
            const std::string value = argv[++i];
            double parsed = 0;
            bool is_good = true;
            if (word == "-c") options.host = value;
            else if (word == "-I") options.interface = value;
            else if (word == "-l") options.log_file = value;
            else if (word == "-L") options.library_log = value;
            else if (word == "-f") {
                has_file = true;
                options.files.push_back(value);
            } else if (word == "-p" && (is_good = number(value, 2, 65535, parsed))) options.port = static_cast<int>(parsed);
            else if (word == "-t" && (is_good = number(value, 0.01, 86400, parsed))) options.seconds = parsed;
            else if (word == "-i" && (is_good = number(value, 0.01, 86400, parsed))) options.interval = parsed;
            else if (word == "-P" && (is_good = number(value, 1, MOST_STREAMS, parsed))) options.streams = static_cast<int>(parsed);
            else if (word == "-m" && (is_good = number(value, 0, 255, parsed))) options.mode = static_cast<int>(parsed);
            else if (word == "-b" && (is_good = number(value, 0.001, 1000000, parsed))) {
                options.bandwidth = parsed;
                has_bandwidth = true;
            }
            if (!is_good) return word + " " + value + ": not a number in its range";
        }
    }
    return options.wants_help ? std::string() : check(options, has_bandwidth);
}

std::string address_of(const std::string &interface) {
    if (interface == "lo" || interface == "loopback") return "127.0.0.1";
    ifaddrs *all = nullptr;
    if (getifaddrs(&all) != 0) return {};
    std::string found;
    for (const ifaddrs *one = all; one && found.empty(); one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET || interface != one->ifa_name) continue;
        char text[INET_ADDRSTRLEN] = {0};
        inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in *>(one->ifa_addr)->sin_addr, text, sizeof text);
        found = text;
    }
    freeifaddrs(all);
    return found;
}
