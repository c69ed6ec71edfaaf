// Mode 10: messages over plain TCP, each with four bytes of length in front. To compare with, and for what signals other connections.
#ifndef NOCTULE_BATS_TCP_H
#define NOCTULE_BATS_TCP_H

#include "connection.h"

#include <sys/socket.h>

namespace noctule_bats {

struct Address {
    sockaddr_storage storage{};
    socklen_t length = 0;
};

// Addresses of a host, IPv4 and IPv6 texts without asking anybody; blocks for names. Why there is none goes to `failure`.
std::vector<Address> resolve(const std::string &host, uint16_t port, std::string &failure);
std::string text_of(const Address &address);
bool is_numeric(const std::string &host);

class Tcp final : public Connection {
public:
    using Connection::Connection;
    ~Tcp() override;

    // Loop's thread.
    void connect(const std::string &host, uint16_t port);
    void accept(int descriptor);

protected:
    Sent put(const octet *data, int length) override;
    Next next(Chunk &chunk) override;
    bool is_delivered(bool &is_sent) override;
    void begin_close() override;
    void release() override;

private:
    std::shared_ptr<Tcp> me() { return std::static_pointer_cast<Tcp>(self()); }
    void try_addresses();
    void begin(int descriptor);
    void ready(uint32_t events);
    // `is_all`: whatever waits already.
    void read_more(bool is_all = false);
    // With the lock: writes what waits; false: the connection is broken.
    bool flush();
    void arm();
    void close_descriptor();
    void after_flush();

    std::vector<Address> addresses_;
    std::string host_, last_failure_;
    bool is_connecting_ = false, is_closing_ = false, is_input_over_ = false;

    // The descriptor and what goes out, of the loop's thread and of those that send.
    std::mutex out_mutex_;
    int descriptor_ = -1;
    uint64_t number_ = 0;
    std::vector<octet> out_;
    size_t out_begin_ = 0;
    bool is_broken_ = false, wants_room_ = false;

    // What came and is no whole message yet, from `in_begin_` on.
    std::vector<octet> in_;
    size_t in_begin_ = 0;
    bool is_reading_ = true;
};

// A listening socket; -1 and why.
int listen_tcp(const std::string &host, uint16_t port, std::string &failure);

} // namespace noctule_bats

#endif
