#include "wire.h"

#include <algorithm>

namespace {
constexpr size_t SIGNAL_HEADER = 32, SIGNAL = 300, LONG_SIGNAL = 1100, TOTAL = 32;

uint32_t hundredths(double value) { return static_cast<uint32_t>(value * 100 + 0.5); }
} // namespace

void put_integer(octet *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = static_cast<octet>(value >> (8 * i));
}

uint64_t get_integer(const octet *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= static_cast<uint64_t>(at[i]) << (8 * i);
    return value;
}

octetVec Signal::bytes() const {
    octetVec out(action == SUMMARY ? LONG_SIGNAL : SIGNAL);
    put_integer(&out[0], MAGIC, 8);
    put_integer(&out[8], test, 4);
    out[12] = action;
    out[13] = streams;
    for (int i = 0; i < 4; i++) put_integer(&out[16 + 4 * i], p[i], 4);
    octet *rest = &out[SIGNAL_HEADER];
    if (action == PARAMETERS) {
        put_integer(rest, hundredths(interval), 4);
        put_integer(rest + 4, hundredths(seconds), 4);
        rest[8] = mode;
        rest[9] = is_reverse;
        put_integer(rest + 10, port, 2);
    }
    if (action == SUMMARY) {
        for (const StreamTotal &total : totals) {
            put_integer(rest, total.id, 8);
            put_integer(rest + 8, total.bytes, 8);
            put_integer(rest + 16, total.datagrams, 8);
            put_integer(rest + 24, total.rate * 100, 8);
            rest += TOTAL;
        }
    }
    return out;
}

std::optional<Signal> Signal::parse(const octet *data, int length) {
    if (length < static_cast<int>(SIGNAL) || get_integer(data, 8) != MAGIC) return std::nullopt;
    Signal signal;
    signal.test = static_cast<uint32_t>(get_integer(data + 8, 4));
    signal.action = data[12];
    signal.streams = data[13];
    for (int i = 0; i < 4; i++) signal.p[i] = static_cast<uint32_t>(get_integer(data + 16 + 4 * i, 4));
    const octet *rest = data + SIGNAL_HEADER;
    if (signal.action == PARAMETERS) {
        signal.interval = static_cast<double>(get_integer(rest, 4)) / 100;
        signal.seconds = static_cast<double>(get_integer(rest + 4, 4)) / 100;
        signal.mode = rest[8];
        signal.is_reverse = rest[9];
        signal.port = static_cast<uint16_t>(get_integer(rest + 10, 2));
        if (signal.interval <= 0 || signal.seconds <= 0 || signal.port == 0) return std::nullopt;
    }
    if (signal.action == SUMMARY) {
        if (length < static_cast<int>(LONG_SIGNAL) || signal.streams > (LONG_SIGNAL - SIGNAL_HEADER) / TOTAL) return std::nullopt;
        for (int i = 0; i < signal.streams; i++, rest += TOTAL) signal.totals.push_back({get_integer(rest, 8), get_integer(rest + 8, 8), get_integer(rest + 16, 8), get_integer(rest + 24, 8) / 100});
    }
    return signal;
}

void DataHeader::write(octet *data) const {
    put_integer(data, MAGIC, 8);
    put_integer(data + 8, stream, 8);
    put_integer(data + 16, seq, 8);
    put_integer(data + 24, sent_ms, 8);
    data[32] = static_cast<octet>(colour | is_last << 1 | is_ack << 2 | has_interval << 3);
    std::memset(data + 33, 0, 7);
    if (!has_interval) return;
    put_integer(data + 40, interval.bytes, 8);
    put_integer(data + 48, interval.datagrams, 8);
    // In a message of data this place has the first number of the interval.
    put_integer(data + 56, interval.id, 8);
    put_integer(data + 64, interval.rate * 100, 8);
}

std::optional<DataHeader> DataHeader::parse(const octet *data, int length) {
    if (length <= static_cast<int>(DATA_HEADER + INTERVAL_BLOCK) || get_integer(data, 8) != MAGIC) return std::nullopt;
    if (data[DATA_HEADER + INTERVAL_BLOCK] != FILLER || data[length - 1] != FILLER) return std::nullopt;
    DataHeader header;
    header.stream = get_integer(data + 8, 8);
    header.seq = get_integer(data + 16, 8);
    header.sent_ms = get_integer(data + 24, 8);
    header.colour = data[32] & 1;
    header.is_last = data[32] >> 1 & 1;
    header.is_ack = data[32] >> 2 & 1;
    header.has_interval = data[32] >> 3 & 1;
    if (header.has_interval) header.interval = {get_integer(data + 56, 8), get_integer(data + 40, 8), get_integer(data + 48, 8), get_integer(data + 64, 8) / 100};
    return header;
}
