// What a BatsProtocol does: begins connections, listens, and ends what it began.
#ifndef NOCTULE_BATS_PROTOCOL_IMPL_H
#define NOCTULE_BATS_PROTOCOL_IMPL_H

#include "bats_protocol.h"
#include "coded.h"

class ProtoImpl : public std::enable_shared_from_this<ProtoImpl> {
public:
    explicit ProtoImpl(std::shared_ptr<noctule_bats::Loop> loop) : loop_(std::move(loop)) {}

    bool load(const noctule_bats::Settings &settings);
    void connect(const std::string &host, int port, const ConnectionCallback &callback, void *user);
    void connect(const ConnectionCallback &callback, void *user);
    // With a callback that is made of the connection.
    void connect_as(const std::string &host, int port, void *user, const std::function<ConnectionCallback(const std::shared_ptr<noctule_bats::Connection> &)> &callback);
    // False: FAILED or ALREADY_IN_LISTEN is told, too.
    bool listen(const std::string &host, int port, const ListenCallback &callback, void *user);
    bool listen(const ListenCallback &callback, void *user);
    bool stop_listening();
    // False: the connection is none of this protocol's.
    bool stop(const IBatsConnPtr &connection);
    void end();
    bool is_owner_of(const noctule_bats::Connection &connection) const { return connection.owner() == owner_.get(); }

private:
    struct Listener {
        std::shared_ptr<const ListenCallback> callback;
        void *user = nullptr;
        noctule_bats::Settings settings;
        noctule_bats::SharedEndpoint endpoint;
        std::string local;
        int tcp = -1;
        uint64_t number = 0;
        bool is_stopped = false;

        ~Listener();
    };
    using SharedListener = std::shared_ptr<Listener>;

    void begin(const std::shared_ptr<noctule_bats::Connection> &connection, const std::string &host, int port, const noctule_bats::Settings &settings);
    std::string open(Listener &listener, const std::string &host, int port);
    void tell(const SharedListener &listener, BatsListenEvent event, const IBatsConnPtr &connection = nullptr);
    void begin_listening(const SharedListener &listener);
    void accept_coded(const SharedListener &listener);
    void accept_tcp(const SharedListener &listener);
    void remember(const std::shared_ptr<noctule_bats::Connection> &connection);

    const std::shared_ptr<noctule_bats::Loop> loop_;
    const std::shared_ptr<noctule_bats::Owner> owner_ = std::make_shared<noctule_bats::Owner>();

    std::mutex mutex_;
    noctule_bats::Settings settings_;
    SharedListener listener_;
    std::vector<std::weak_ptr<noctule_bats::Connection>> connections_;
    // Counts what was loaded: connections of one configuration share a socket.
    uint64_t loaded_ = 0;

    // Loop's thread only.
    noctule_bats::SharedEndpoint client_;
    uint64_t client_of_ = 0;
};

#endif
