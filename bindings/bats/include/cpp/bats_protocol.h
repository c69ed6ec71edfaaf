// Connecting and listening in the BATS API. Includes the rest of it.
#ifndef NOCTULE_BATS_PROTOCOL_H
#define NOCTULE_BATS_PROTOCOL_H

#include "bats_config.h"
#include "bats_connection.h"
#include "bats_iocontext.h"

class ProtoImpl;

// Any number of them may share an IOContext, which has to live longer. Any thread may call, callbacks included. Nothing blocks but the destructor, which lets a
// callback that runs finish; it ends the connections, silently: what was sent is delivered, what is asked of them afterwards says that they are closed.
class BatsProtocol {
public:
    explicit BatsProtocol(IOContext &context);
    BatsProtocol(IOContext &context, const BatsConfiguration &configuration);
    virtual ~BatsProtocol();
    BatsProtocol(const BatsProtocol &) = delete;
    BatsProtocol &operator=(const BatsProtocol &) = delete;

    // For connections and listeners begun from now on. False: something in it cannot be had; the log says what, and what is begun fails.
    bool LoadConfig(const BatsConfiguration &configuration);

    // ESTABLISHED and WRITABLE follow, or FAILED, or TIMEOUT.
    void StartConnect(const std::string &address, uint16_t port, const ConnectionCallback &callback, void *user);
    void StartConnect(const ConnectionCallback &callback, void *user);
    // CLOSED follows. Null is allowed.
    void StopConnection(const IBatsConnPtr &connection);
    // BATS_LISTEN_SUCCESS or BATS_LISTEN_FAILED follows, then a BATS_LISTEN_NEW_CONNECTION for each connection.
    void StartListen(const std::string &address, uint16_t port, const ListenCallback &callback, void *user);
    void StartListen(const ListenCallback &callback, void *user);
    // Accepted connections stay. BATS_LISTEN_STOPPED follows.
    void StopListen();

protected:
    std::shared_ptr<ProtoImpl> impl_;
    IOContext &context_;
};

#endif
