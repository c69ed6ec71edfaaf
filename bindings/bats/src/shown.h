// Text of others as it may reach a terminal or a log.
#ifndef NOCTULE_BATS_SHOWN_H
#define NOCTULE_BATS_SHOWN_H

#include <cstdint>
#include <cstdio>
#include <string>

namespace noctule_bats {

// What drives a terminal, begins a line, turns the direction of text or cannot be seen. The same as `far_text::is_deceptive` of noctule, in ranges.
inline bool is_deceptive(uint32_t c) {
    struct Range {
        uint32_t first, last;
    };
    constexpr Range RANGES[] = {{0, 0x1f}, {0x7f, 0x9f}, {0xad, 0xad}, {0x34f, 0x34f}, {0x61c, 0x61c}, {0x115f, 0x1160}, {0x17b4, 0x17b5}, {0x180b, 0x180f}, {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f}, {0x3164, 0x3164}, {0xd800, 0xdfff}, {0xfe00, 0xfe0f}, {0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xfff0, 0xfffb}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}, {0x110000, 0xffffffff}};
    for (const Range &range : RANGES)
        if (c >= range.first && c <= range.last) return true;
    return false;
}

// Bytes that are no text, and characters that deceive, as \xNN.
inline std::string shown(const std::string &text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const auto first = static_cast<unsigned char>(text[at]);
        const size_t length = first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
        static constexpr uint32_t MASK[] = {0, 0x7f, 0x1f, 0x0f, 0x07}, LEAST[] = {0, 0, 0x80, 0x800, 0x10000};
        uint32_t c = first & MASK[length];
        bool is_text = length > 0 && at + length <= text.size();
        for (size_t i = 1; is_text && i < length; i++) {
            const auto next = static_cast<unsigned char>(text[at + i]);
            is_text = (next & 0xc0) == 0x80;
            c = c << 6 | (next & 0x3f);
        }
        is_text = is_text && c >= LEAST[length] && !is_deceptive(c);
        const size_t taken = is_text ? length : 1;
        if (is_text) {
            out.append(text, at, taken);
        } else {
            char escaped[5];
            std::snprintf(escaped, sizeof escaped, "\\x%02x", first);
            out += escaped;
        }
        at += taken;
    }
    return out;
}

} // namespace noctule_bats

#endif
