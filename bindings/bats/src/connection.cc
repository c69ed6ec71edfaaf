#include "connection.h"

#include "log.h"

#include <cerrno>
#include <sys/stat.h>

namespace noctule_bats {

namespace {
// A message that was not consumed is offered again after this.
constexpr milliseconds OFFER_AGAIN{10};
// Between looks at what is not acknowledged yet, and between repetitions of ALL_DATA_ACKED while nothing is sent.
constexpr milliseconds LOOK{10}, REPEAT{100};
// Messages of one connection before another has its turn.
constexpr int TURN = 32;
// A full buffer is not tried more often: programs spin.
constexpr std::chrono::microseconds TRY_AGAIN{500};

const char *event_name(BatsConnEvent event) {
    switch (event) {
    case BatsConnEvent::BATS_CONNECTION_FAILED: return "FAILED";
    case BatsConnEvent::BATS_CONNECTION_TIMEOUT: return "TIMEOUT";
    case BatsConnEvent::BATS_CONNECTION_SHUTDOWN_BY_PEER: return "SHUTDOWN_BY_PEER";
    case BatsConnEvent::BATS_CONNECTION_CLOSED: return "CLOSED";
    default: return "ended";
    }
}
} // namespace

Connection::Connection(std::shared_ptr<Loop> loop, Settings settings, std::shared_ptr<Owner> owner)
    : loop_(std::move(loop)), settings_(std::move(settings)), owner_(std::move(owner)) {}

// --- the program's side ---

void Connection::SetConnectionCallback(const ConnectionCallback &callback, void *user) { set_callback(std::make_shared<const ConnectionCallback>(callback), user); }
void Connection::SetConnectionCallback(ConnectionCallback &&callback, void *user) {
    set_callback(std::make_shared<const ConnectionCallback>(std::move(callback)), user);
}

void Connection::set_callback(Function function, void *user) {
    // An empty function is none.
    if (!*function) function = nullptr;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        // The old one is destroyed without the lock: it may own this connection.
        callback_.swap(function);
        user_ = user;
        callbacks_set_++;
    }
    loop_->post([connection = self()] { connection->callback_changed(); });
}

bool Connection::SendData(const octetVec &data) { return SendData(data.data(), static_cast<int>(std::min<size_t>(data.size(), LARGEST_MESSAGE + 1))); }
bool Connection::SendData(const octet *data, int length) { return send(data, length) == Sent::yes; }

Sent Connection::send(const octet *data, int length) {
    if (data == nullptr || length <= 0 || static_cast<uint32_t>(length) > GetIdealBufferLength()) {
        log(Level::warn, data == nullptr ? "SendData: data is null"
                                         : "SendData: " + std::to_string(length) + " bytes are not between 1 and the ideal length, " + std::to_string(GetIdealBufferLength()));
        return Sent::wrong;
    }
    if (state_ != State::open) return Sent::closed;
    if (has_file_) return Sent::full;
    return put_now(data, length);
}

Sent Connection::put_now(const octet *data, int length) {
    Sent sent;
    bool was_full;
    {
        std::lock_guard<std::mutex> lock(send_mutex_);
        was_full = is_full_;
        const auto now = Clock::now();
        if (was_full && now - last_try_ < TRY_AGAIN) return Sent::full;
        last_try_ = now;
        sent = put(data, length);
        // Set under the lock that `room` takes, too: the event WRITABLE may be in the queue already.
        is_full_ = sent == Sent::full;
    }
    switch (sent) {
    case Sent::yes:
        last_activity_ = Clock::now().time_since_epoch().count();
        // The transport is silent about room that a further try has found, and the program may wait for it.
        if (was_full) {
            loop_->post([connection = self()] {
                if (!connection->is_full_) connection->room();
            });
        }
        if (!is_busy_.exchange(true)) loop_->post([connection = self()] { connection->begin_watch(); });
        break;
    case Sent::full:
        if (!was_full) {
            loop_->post([connection = self()] {
                if (connection->is_full_ && connection->state_ == State::open) connection->tell(BatsConnEvent::BATS_CONNECTION_BUFFER_FULL);
            });
        }
        break;
    case Sent::closed:
        if (!has_failed_.exchange(true)) {
            loop_->post([connection = self()] {
                if (connection->state_ == State::open && !connection->is_far_over_) connection->tell(BatsConnEvent::BATS_CONNECTION_SEND_DATA_ERROR);
            });
        }
        break;
    case Sent::wrong: break;
    }
    return sent;
}

bool Connection::SendFile(const std::string &path) {
    const auto refuse = [&](const std::string &why) {
        log(Level::warn, "SendFile " + path + ": " + why);
        return false;
    };
    if (!is_reliable(settings_.mode)) return refuse(std::string("mode ") + mode_name(settings_.mode) + " is not reliable");
    if (state_ != State::open) return refuse("the connection is not open");
    std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
    struct stat about {};
    if (!file || fstat(fileno(file.get()), &about) != 0) return refuse(std::strerror(errno));
    if (!S_ISREG(about.st_mode)) return refuse("not a regular file");
    if (has_file_.exchange(true)) return refuse("another file is under way");
    auto shared = std::make_shared<decltype(file)>(std::move(file));
    const bool is_begun = loop_->post([connection = self(), shared] {
        connection->file_ = std::move(*shared);
        connection->pump_file();
    });
    if (!is_begun) has_file_ = false;
    return is_begun;
}

bool Connection::IsWritable() { return state_ == State::open && !is_full_ && !has_file_; }

const std::string Connection::GetRemoteAddress() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return split_address(remote_).first;
}
const std::string Connection::GetLocalAddress() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return split_address(local_).first;
}
uint16_t Connection::GetRemotePort() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return split_address(remote_).second;
}
uint16_t Connection::GetLocalPort() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return split_address(local_).second;
}

void Connection::stop() {
    State open = State::open;
    // From here on nothing is sent, whenever the loop comes to it.
    state_.compare_exchange_strong(open, State::closing);
    loop_->post([connection = self()] { connection->stop_here(); });
}

// --- the loop's side ---

bool Connection::has_callback() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return callback_ != nullptr;
}

bool Connection::tell(BatsConnEvent event, const octet *data, int length) {
    Function function;
    void *user;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        function = callback_;
        user = user_;
    }
    if (!function) return true;
    bool is_consumed = true;
    const bool is_good = loop_->call(*owner_, "a connection callback", [&] { is_consumed = (*function)(self(), event, data, length, user); });
    if (!is_good) {
        log(Level::error, "the connection is closed because its callback threw");
        stop_here();
        return true;
    }
    return is_consumed;
}

void Connection::tell_writable() {
    uint64_t current;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!callback_) return;
        current = callbacks_set_;
    }
    if (state_ != State::open || is_full_ || writable_told_ == current) return;
    writable_told_ = current;
    tell(BatsConnEvent::BATS_CONNECTION_WRITABLE);
}

void Connection::opened(const std::string &local, const std::string &remote) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        local_ = local;
        remote_ = remote;
    }
    last_activity_ = Clock::now().time_since_epoch().count();
    State opening = State::opening;
    if (!state_.compare_exchange_strong(opening, State::open)) return;
    if (idle_timeout(settings_).count() > 0) loop_->after(idle_timeout(settings_), [connection = self()] { connection->check_idle(); });
}

void Connection::tell_established() {
    tell(BatsConnEvent::BATS_CONNECTION_ESTABLISHED);
    tell_writable();
}

void Connection::accepted() {
    tell_writable();
    pump();
}

void Connection::callback_changed() {
    tell_writable();
    pump();
    // Told again: the new one may wait for it.
    if (is_watching_) check_delivery();
}

void Connection::room() {
    if (state_ != State::open) return;
    {
        std::lock_guard<std::mutex> lock(send_mutex_);
        is_full_ = false;
    }
    if (file_) return pump_file();
    {
        std::lock_guard<std::mutex> lock(mutex_);
        writable_told_ = callbacks_set_;
    }
    tell(BatsConnEvent::BATS_CONNECTION_WRITABLE);
}

void Connection::pump() {
    // A callback may change the callback of its own connection.
    if (is_pumping_) return;
    is_pumping_ = true;
    for (int told = 0; state_ == State::open || state_ == State::closing; told++) {
        if (state_ == State::open && !has_callback()) break;
        if (told == TURN) {
            loop_->post([connection = self()] { connection->pump(); });
            break;
        }
        Chunk chunk{nullptr, 0};
        if (kept_) {
            chunk = {kept_->data(), static_cast<int>(kept_->size())};
        } else if (Next what = next(chunk); what != Next::message) {
            is_pumping_ = false;
            if (is_far_over_) ended(far_over_how_);
            return;
        }
        last_activity_ = Clock::now().time_since_epoch().count();
        // What arrives after the program has stopped the connection is not wanted.
        if (state_ != State::open) continue;
        if (tell(BatsConnEvent::BATS_CONNECTION_DATA_RECEIVED, chunk.data, chunk.length)) {
            kept_ = nullptr;
        } else {
            if (!kept_) kept_ = std::make_unique<std::vector<octet>>(chunk.data, chunk.data + chunk.length);
            loop_->after(OFFER_AGAIN, [connection = self()] { connection->pump(); });
            break;
        }
    }
    is_pumping_ = false;
}

void Connection::far_over(BatsConnEvent how) {
    is_far_over_ = true;
    far_over_how_ = how;
    if (state_ == State::closing) return ended(BatsConnEvent::BATS_CONNECTION_CLOSED);
    pump();
    // Without a callback it waits for one, and does not keep itself alive for that.
    if (state_ == State::open && !has_callback()) loop_->drop(self());
}

void Connection::failed(BatsConnEvent event, const std::string &words) {
    log(Level::warn, words);
    ended(event);
}

void Connection::ended(BatsConnEvent how) {
    if (state_.exchange(State::over) == State::over) return;
    const auto keep = self();
    log(Level::debug, std::string("connection: ") + event_name(how));
    file_ = nullptr;
    kept_ = nullptr;
    release();
    tell(how);
    Function function;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        // It may own this connection.
        function.swap(callback_);
    }
    loop_->drop(keep);
}

void Connection::stop_here() {
    switch (state_.load()) {
    case State::over: return;
    case State::opening: return ended(BatsConnEvent::BATS_CONNECTION_CLOSED);
    case State::open:
    case State::closing: break;
    }
    state_ = State::closing;
    file_ = nullptr;
    if (is_far_over_) return ended(BatsConnEvent::BATS_CONNECTION_CLOSED);
    begin_close();
}

// --- files, acknowledgement, idling ---

void Connection::pump_file() {
    file_block_.resize(GetIdealBufferLength());
    while (file_ && state_ == State::open) {
        const long at = std::ftell(file_.get());
        const size_t length = std::fread(file_block_.data(), 1, file_block_.size(), file_.get());
        if (length == 0) {
            const bool is_bad = std::ferror(file_.get()) != 0;
            file_ = nullptr;
            has_file_ = false;
            if (is_bad) {
                log(Level::error, "SendFile: the file cannot be read to its end");
                tell(BatsConnEvent::BATS_CONNECTION_SEND_DATA_ERROR);
            } else {
                begin_watch();
                tell(BatsConnEvent::BATS_CONNECTION_WRITABLE);
            }
            return;
        }
        const Sent sent = put_now(file_block_.data(), static_cast<int>(length));
        if (sent == Sent::yes) continue;
        std::fseek(file_.get(), at, SEEK_SET);
        // Tried again when there is room; a try that came too soon, a little later.
        if (sent == Sent::full && !is_file_timed_) {
            is_file_timed_ = true;
            loop_->after(LOOK, [connection = self()] {
                connection->is_file_timed_ = false;
                connection->pump_file();
            });
        }
        return;
    }
}

void Connection::begin_watch() {
    is_unsent_ = true;
    if (is_watching_) return;
    is_watching_ = true;
    loop_->after(milliseconds(1), [connection = self()] {
        connection->is_watching_ = false;
        connection->check_delivery();
    });
}

void Connection::check_delivery() {
    if (state_ != State::open) return;
    const bool was_watching = is_watching_;
    is_busy_ = false;
    bool is_sent = false;
    const bool is_there = is_delivered(is_sent);
    if (is_sent && is_unsent_ && !file_) {
        is_unsent_ = false;
        tell(BatsConnEvent::BATS_CONNECTION_SEND_COMPLETE);
    }
    const bool is_quiet = is_there && !file_;
    if (is_quiet && is_reliable(settings_.mode)) tell(BatsConnEvent::BATS_CONNECTION_ALL_DATA_ACKED);
    // A timer for the next look runs already, or none is needed.
    if (was_watching || state_ != State::open) return;
    if (is_sent && !is_reliable(settings_.mode)) return;
    is_watching_ = true;
    loop_->after(is_quiet ? REPEAT : LOOK, [connection = self()] {
        connection->is_watching_ = false;
        connection->check_delivery();
    });
}

void Connection::check_idle() {
    if (state_ != State::open) return;
    const auto last = Clock::time_point(Clock::duration(last_activity_.load()));
    const auto left = std::chrono::duration_cast<milliseconds>(last + idle_timeout(settings_) - Clock::now());
    bool is_sent = false;
    const bool is_idle = left.count() <= 0 && !kept_ && !file_ && (!is_reliable(settings_.mode) || is_delivered(is_sent));
    if (is_idle) {
        log(Level::info, "nothing was sent or received for " + std::to_string(settings_.timeout) + " ms: the connection closes");
        return stop_here();
    }
    loop_->after(std::max(left + milliseconds(1), milliseconds(100)), [connection = self()] { connection->check_idle(); });
}

} // namespace noctule_bats
