// A connection of the BATS API, and the callbacks that tell of it.
#ifndef NOCTULE_BATS_CONNECTION_H
#define NOCTULE_BATS_CONNECTION_H

#include "bats_config.h"

class IBatsConnection;
using IBatsConnPtr = std::shared_ptr<IBatsConnection>;

// `data` and `length` belong to DATA_RECEIVED and are valid during the call only. True: consumed; false: the same data is offered again a little later.
using ConnectionCallback = std::function<bool(const IBatsConnPtr &, const BatsConnEvent &, const octet *, int, void *)>;
using ListenCallback = std::function<void(const IBatsConnPtr &, const BatsListenEvent &, void *)>;

// May be used from any thread, callbacks included, also after it is closed. The order of its functions is part of the binary interface.
class IBatsConnection {
public:
    virtual ~IBatsConnection() = default;

    // What is told from now on, and with which pointer. Data that came before is held for it. May be called in a callback of the same connection.
    virtual void SetConnectionCallback(const ConnectionCallback &callback, void *user) = 0;
    virtual void SetConnectionCallback(ConnectionCallback &&callback, void *user) = 0;
    // Takes one message of at most the ideal length, or says false: closed, full (WRITABLE follows), or of a wrong length.
    virtual bool SendData(const octetVec &data) = 0;
    virtual bool SendData(const octet *data, int length) = 0;
    // Reliable modes: the bytes of a file as messages of the ideal length, ALL_DATA_ACKED at its end. SendData says false meanwhile.
    virtual bool SendFile(const std::string &path) = 0;
    virtual bool IsWritable() = 0;
    virtual const std::string GetRemoteAddress() const = 0;
    virtual const std::string GetLocalAddress() const = 0;
    virtual uint16_t GetRemotePort() const = 0;
    virtual uint16_t GetLocalPort() const = 0;
    virtual uint32_t GetIdealBufferLength() const = 0;
};

#endif
