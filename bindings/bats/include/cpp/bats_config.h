// Enumerations of the BATS API, and the configuration of a connection or listener. Written for noctule from a description of the interface; what a value comes to
// here is in docs/guide/bats-api.md.
#ifndef NOCTULE_BATS_CONFIG_H
#define NOCTULE_BATS_CONFIG_H

#include <cassert> // programs of this interface use it without asking
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

using octet = unsigned char;
using octetVec = std::vector<octet>;
using octVecIter = octetVec::iterator;
using octVecConstIter = octetVec::const_iterator;

// What a connection promises. Programs also cast 10 (plain TCP) into it; 11 (UDP) and 12 (QUIC) are refused.
enum class TransMode : uint8_t { BTP = 0, BRTP = 1, BRCTP = 2, TRANSPARENT = 3 };

enum class CongestionControl : uint8_t { None = 0, BBR = 1, BBRv2 = 3, BBRv3 = 4, GCC = 5 };

// Has no effect on what a program sees.
enum FrameType : uint8_t { TRANSPARENT = 0, BATS_HEADER_V0 = 1, BATS_HEADER_V1 = 2, BATS_HEADER_MIN = 3 };

enum class BatsListenEvent : uint8_t {
    BATS_LISTEN_NONE = 0,
    BATS_LISTEN_NEW_CONNECTION,
    BATS_LISTEN_FAILED,
    BATS_LISTEN_SUCCESS,
    BATS_LISTEN_ACCEPTED_ERROR,
    BATS_LISTEN_ALREADY_IN_LISTEN,
    BATS_LISTEN_STOPPED,
};

enum class BatsConnEvent : uint8_t {
    BATS_CONNECTION_NONE = 0,
    BATS_CONNECTION_FAILED,
    BATS_CONNECTION_ESTABLISHED,
    BATS_CONNECTION_TIMEOUT,
    BATS_CONNECTION_SHUTDOWN_BY_PEER,
    BATS_CONNECTION_WRITABLE,
    BATS_CONNECTION_DATA_RECEIVED,
    BATS_CONNECTION_SEND_COMPLETE,
    BATS_CONNECTION_SEND_DATA_ERROR,
    BATS_CONNECTION_BUFFER_FULL,
    BATS_CONNECTION_CLOSED,
    BATS_CONNECTION_ERROR,
    BATS_CONNECTION_ALREADY_CONNECTED,
    BATS_CONNECTION_IDEAL_BUFFER_LENGTH,
    BATS_CONNECTION_ALL_DATA_ACKED,
};

class BatsConfigImpl;

// Settings of a connection or listener. A copy is independent of the original. One thread at a time.
class BatsConfiguration {
public:
    BatsConfiguration();
    BatsConfiguration(const BatsConfiguration &other);
    BatsConfiguration &operator=(const BatsConfiguration &other);
    ~BatsConfiguration();

    // Default BRTP.
    void SetMode(TransMode mode);
    void SetCC(CongestionControl control);
    // Milliseconds: an attempt to connect takes no longer, and a connection without data ends after them. Below 1000: the defaults, 10 s and never.
    void SetTimeout(int timeout);
    void SetLocalPort(int port);
    void SetLocalAddress(const std::string &address);
    // At a client: a file with the public key that the server must have.
    void SetCertFile(const std::string &path);
    // The private key that this end is known by.
    void SetKeyFile(const std::string &path);
    // Not built: data goes as it is, and the log says so.
    void EnableCompression(bool enabled);
    // All modes but TCP are always encrypted.
    void EnableEncryption(bool enabled);
    void SetFrameType(FrameType type);
    // IPv4, IPv6, or a host's name.
    void SetRemoteAddr(const std::string &address);
    void SetRemotePort(int port);

    const BatsConfigImpl &GetImpl() const;
    friend std::ostream &operator<<(std::ostream &out, const BatsConfiguration &configuration);

private:
    BatsConfigImpl *impl_;
};

#endif
