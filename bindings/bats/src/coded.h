// Connections of modes 0 to 3: a session of noctule, and a flow of messages in each direction.
#ifndef NOCTULE_BATS_CODED_H
#define NOCTULE_BATS_CODED_H

#include "connection.h"

namespace noctule_bats {

// The socket; shared by connections of one configuration, and open as long as one of them is.
using SharedEndpoint = std::shared_ptr<noctule::Endpoint>;

noctule::Result<SharedEndpoint> client_endpoint(Loop &loop, const Settings &settings);
noctule::Result<SharedEndpoint> server_endpoint(Loop &loop, const Settings &settings, const std::string &address);

class Coded final : public Connection {
public:
    using Connection::Connection;

    // Loop's thread.
    void connect(SharedEndpoint endpoint, const std::string &host, const std::string &key);
    // It does not keep the endpoint: that would go on taking sessions when nobody listens any more.
    bool accept(const std::string &local, noctule::Session session);

protected:
    Sent put(const octet *data, int length) override;
    Next next(Chunk &chunk) override;
    bool is_delivered(bool &is_sent) override;
    void begin_close() override;
    void release() override;

private:
    std::shared_ptr<Coded> me() { return std::static_pointer_cast<Coded>(self()); }
    void connected(const noctule::Error &error, const std::string &host, const std::string &key);
    bool begin();
    void take_flows();
    void closed();

    SharedEndpoint endpoint_;
    noctule::Session session_;
    noctule::Flow out_, in_;
    // For threads that send: a handle that was freed is refused by the library.
    std::atomic<uint64_t> out_id_{0};
    bool is_closing_ = false;
};

} // namespace noctule_bats

#endif
