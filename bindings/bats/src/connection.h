// What all connections have in common: which events come and in which order, sending, files, acknowledgement, idling. How messages travel is the derived classes'.
#ifndef NOCTULE_BATS_CONNECTION_IMPL_H
#define NOCTULE_BATS_CONNECTION_IMPL_H

#include "bats_connection.h"
#include "loop.h"
#include "settings.h"

#include <atomic>
#include <cstdio>

namespace noctule_bats {

enum class Sent { yes, full, closed, wrong };

class Connection : public IBatsConnection, public std::enable_shared_from_this<Connection> {
public:
    Connection(std::shared_ptr<Loop> loop, Settings settings, std::shared_ptr<Owner> owner);

    void SetConnectionCallback(const ConnectionCallback &callback, void *user) override;
    void SetConnectionCallback(ConnectionCallback &&callback, void *user) override;
    bool SendData(const octetVec &data) override;
    bool SendData(const octet *data, int length) override;
    bool SendFile(const std::string &path) override;
    bool IsWritable() override;
    const std::string GetRemoteAddress() const override;
    const std::string GetLocalAddress() const override;
    uint16_t GetRemotePort() const override;
    uint16_t GetLocalPort() const override;
    uint32_t GetIdealBufferLength() const override { return ideal_length(settings_.mode); }

    // SendData with its reason.
    Sent send(const octet *data, int length);
    // Begins to close; CLOSED follows. Any thread.
    void stop();
    void stop_here();
    const Owner *owner() const { return owner_.get(); }
    // It will not come about.
    void failed(BatsConnEvent event, const std::string &words);

    // Loop's thread: tells what a program waits for that has just been handed an accepted connection.
    void accepted();

protected:
    enum class State { opening, open, closing, over };
    struct Chunk {
        const octet *data;
        int length;
    };
    enum class Next { message, none, end };

    // A message into the transport's buffer. Any thread, one at a time.
    virtual Sent put(const octet *data, int length) = 0;
    // The next message, valid until the next call.
    virtual Next next(Chunk &chunk) = 0;
    // `is_sent`: nothing waits here. Gives whether everything is known to be there.
    virtual bool is_delivered(bool &is_sent) = 0;
    // Delivers what was sent, then calls `ended`.
    virtual void begin_close() = 0;
    // Nothing more comes in, and its objects may go.
    virtual void release() = 0;

    // Loop's thread.
    void opened(const std::string &local, const std::string &remote);
    // ESTABLISHED, and WRITABLE unasked.
    void tell_established();
    // There is room again.
    void room();
    // Hands over what has come.
    void pump();
    // The far end is done with the connection: tells so when all that came was handed over.
    void far_over(BatsConnEvent how);
    void ended(BatsConnEvent how);
    State state() const { return state_; }
    std::shared_ptr<Connection> self() { return shared_from_this(); }

    const std::shared_ptr<Loop> loop_;
    const Settings settings_;
    const std::shared_ptr<Owner> owner_;

private:
    using Function = std::shared_ptr<const ConnectionCallback>;
    void set_callback(Function function, void *user);
    void callback_changed();
    bool has_callback() const;
    bool tell(BatsConnEvent event, const octet *data = nullptr, int length = 0);
    void tell_writable();
    Sent put_now(const octet *data, int length);
    void pump_file();
    void begin_watch();
    void check_delivery();
    void check_idle();

    mutable std::mutex mutex_;
    Function callback_;
    void *user_ = nullptr;
    std::string local_, remote_;
    uint64_t callbacks_set_ = 0;

    std::mutex send_mutex_;
    Clock::time_point last_try_{};
    std::atomic<State> state_{State::opening};
    std::atomic<bool> is_full_{false}, is_busy_{false}, has_failed_{false}, has_file_{false};
    std::atomic<Clock::rep> last_activity_{0};

    // Loop's thread only.
    uint64_t writable_told_ = 0;
    bool is_watching_ = false, is_unsent_ = false, is_pumping_ = false, is_far_over_ = false, is_file_timed_ = false;
    BatsConnEvent far_over_how_ = BatsConnEvent::BATS_CONNECTION_CLOSED;
    std::unique_ptr<std::vector<octet>> kept_;
    std::unique_ptr<std::FILE, int (*)(std::FILE *)> file_{nullptr, std::fclose};
    std::vector<octet> file_block_;
};

} // namespace noctule_bats

#endif
