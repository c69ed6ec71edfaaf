// What a configuration says, and what its values come to in noctule.
#ifndef NOCTULE_BATS_SETTINGS_H
#define NOCTULE_BATS_SETTINGS_H

#include "bats_config.h"

#include <chrono>

class BatsConfigImpl {
public:
    int mode = 1;
    // Without a value: what noctule takes by itself.
    int control = -1;
    int timeout = 0;
    int local_port = 0;
    std::string local_address;
    std::string cert_file, key_file;
    bool compression = false;
    bool encryption = true;
    int frame_type = 0;
    std::string remote_address;
    int remote_port = 0;
};

namespace noctule_bats {

using Settings = BatsConfigImpl;
using std::chrono::milliseconds;

enum Mode { BTP = 0, BRTP = 1, BRCTP = 2, TRANSPARENT_MODE = 3, TCP = 10, UDP = 11, QUIC = 12 };

// Largest message that is taken from the network, in every mode; the interface promises at most 150,000 bytes.
constexpr uint32_t LARGEST_MESSAGE = 150000;

constexpr bool is_reliable(int mode) { return mode == BRTP || mode == BRCTP || mode == TCP; }

// Bytes of the messages that suit a mode. Unreliable modes lose messages as a whole, so theirs are smaller: one batch of coded packets, or a single packet.
constexpr uint32_t ideal_length(int mode) { return is_reliable(mode) ? 131072 : mode == BTP ? 16384 : 1024; }

// noctule's name of a congestion control; null: its default.
const char *congestion_name(int control);
const char *mode_name(int mode);

// Why these settings cannot be had; empty: they can.
std::string refusal(const Settings &settings);
// Logs what is done otherwise than the settings say.
void tell_differences(const Settings &settings);

// Time-outs below this are no time-outs: programs of this interface give 2 and live longer.
constexpr milliseconds SHORTEST_TIMEOUT{1000};
inline milliseconds connect_timeout(const Settings &settings) {
    return milliseconds(settings.timeout) < SHORTEST_TIMEOUT ? milliseconds(10000) : milliseconds(settings.timeout);
}
// Zero: a connection may be idle for ever.
inline milliseconds idle_timeout(const Settings &settings) {
    return milliseconds(settings.timeout) < SHORTEST_TIMEOUT ? milliseconds(0) : milliseconds(settings.timeout);
}

// "host:port", with brackets where IPv6 needs them.
std::string host_and_port(const std::string &host, uint16_t port);
// Its two halves, without brackets.
std::pair<std::string, uint16_t> split_address(const std::string &text);

} // namespace noctule_bats

#endif
