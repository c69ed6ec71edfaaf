// What the two ends of bats_iperf say to each other: signals by TCP, and messages of data. Little-endian, written field by field.
#ifndef NOCTULE_BATS_IPERF_WIRE_H
#define NOCTULE_BATS_IPERF_WIRE_H

#include "include/cpp/bats_protocol.h"

#include <optional>

// Integers as they are written: little-endian.
void put_integer(octet *at, uint64_t value, int bytes);
uint64_t get_integer(const octet *at, int bytes);

constexpr uint64_t MAGIC = 0xa1b2c3d4a5b6c7d8;

enum Action : uint8_t { FILE_REQUEST = 1, PARAMETERS = 2, SUMMARY = 3, ANSWER = 4 };

// One stream in a summary.
struct StreamTotal {
    uint64_t id = 0, bytes = 0, datagrams = 0, rate = 0; // the rate in bytes per second
};

struct Signal {
    uint32_t test = 0;
    uint8_t action = 0;
    uint8_t streams = 0;
    uint32_t p[4] = {0, 0, 0, 0};
    // Of PARAMETERS.
    double interval = 0, seconds = 0;
    uint8_t mode = 0, is_reverse = 0;
    uint16_t port = 0;
    // Of SUMMARY.
    std::vector<StreamTotal> totals;

    octetVec bytes() const;
    // Nothing if it is none.
    static std::optional<Signal> parse(const octet *data, int length);
};

constexpr size_t DATA_HEADER = 40, INTERVAL_BLOCK = 32;
constexpr octet FILLER = 0x77;

// What begins a message of data.
struct DataHeader {
    uint64_t stream = 0, seq = 0, sent_ms = 0;
    bool colour = false, is_last = false, is_ack = false, has_interval = false;
    // Of the sender's last interval.
    StreamTotal interval;

    // Into the beginning of a message that is filled already.
    void write(octet *data) const;
    // Nothing if the message is not what was sent: the magic, the first byte of the filler, the last byte.
    static std::optional<DataHeader> parse(const octet *data, int length);
};

#endif
