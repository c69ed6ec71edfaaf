// The server: listens for signals, and for the data of one test at a time.
#include "files.h"
#include "link.h"
#include "roles.h"
#include "wire.h"

#include <algorithm>
#include <map>
#include <set>
#include <thread>

namespace {
// Messages of unreliable modes may arrive after the summary, which goes by TCP.
constexpr milliseconds STRAGGLERS{200};
// A port that the last test has left may be busy for a moment.
constexpr milliseconds LISTEN_AGAIN{100};
constexpr int LISTEN_TRIES = 50;

struct Incoming {
    int number;
    uint64_t id;
    uint64_t bytes = 0, datagrams = 0, next_seq = 0;
    // At the beginning of the interval.
    uint64_t told_bytes = 0, told_datagrams = 0, told_seq = 0;
    double jitter = 0;
    int64_t transit = 0;
};

struct Test {
    IBatsConnPtr signals;
    Signal parameters;
    bool is_files = false;
    std::unique_ptr<BatsProtocol> protocol;
    bool is_listening = false, has_begun = false;
    int tries = 0;
    Clock::time_point listen_at{}, begin{}, summary_at{};
    int intervals_told = 0;
    std::vector<std::unique_ptr<Incoming>> streams;
    std::optional<Signal> summary;
    bool is_over = false;
    std::unique_ptr<Receiver> files;

    // First, so that no callback sees a test that is half gone.
    ~Test() { protocol.reset(); }
};

class Server {
public:
    Server(const Options &options, Report &report, IOContext &context, std::atomic<bool> &is_running) : options_(options), report_(report), context_(context), is_running_(is_running) {}

    int run() {
        report_.version();
        report_.rule();
        const std::string address = address_of(options_.interface);
        if (address.empty()) {
            report_.error("-I " + options_.interface + ": no such interface, or it has no IPv4 address");
            return 1;
        }
        address_ = address;
        BatsConfiguration configuration;
        configuration.SetMode(static_cast<TransMode>(10));
        BatsProtocol signals(context_, configuration);
        signals.StartListen(address, static_cast<uint16_t>(options_.port - 1), [this](const IBatsConnPtr &connection, const BatsListenEvent &event, void *) { on_signals(connection, event); }, nullptr);
        while (is_running_) {
            step();
            std::unique_lock<std::mutex> lock(mutex_);
            changed_.wait_for(lock, milliseconds(10));
        }
        std::unique_ptr<Test> last;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            last = std::move(test_);
        }
        return status_;
    }

private:
    void on_signals(const IBatsConnPtr &connection, BatsListenEvent event) {
        const std::string port = std::to_string(options_.port - 1) + " (signaling channel)";
        switch (event) {
        case BatsListenEvent::BATS_LISTEN_SUCCESS:
            report_.line("Server listening on " + port);
            report_.rule();
            break;
        case BatsListenEvent::BATS_LISTEN_FAILED:
            report_.line("Server failed to listen on " + port);
            status_ = 1;
            is_running_ = false;
            break;
        case BatsListenEvent::BATS_LISTEN_NEW_CONNECTION:
            connection->SetConnectionCallback(
                [this](const IBatsConnPtr &from, const BatsConnEvent &what, const octet *data, int length, void *) {
                    if (what == BatsConnEvent::BATS_CONNECTION_DATA_RECEIVED) {
                        if (auto signal = Signal::parse(data, length)) on_signal(from, *signal);
                    } else if (what == BatsConnEvent::BATS_CONNECTION_CLOSED || what == BatsConnEvent::BATS_CONNECTION_SHUTDOWN_BY_PEER) {
                        std::lock_guard<std::mutex> lock(mutex_);
                        if (test_ && test_->signals == from) test_->is_over = true;
                    }
                    return true;
                },
                nullptr);
            break;
        default: break;
        }
    }

    void answer(const IBatsConnPtr &connection, uint32_t test, uint32_t refusal) {
        Signal signal;
        signal.test = test;
        signal.action = ANSWER;
        signal.p[0] = refusal;
        connection->SendData(signal.bytes());
    }

    void on_signal(const IBatsConnPtr &from, const Signal &signal) {
        std::lock_guard<std::mutex> lock(mutex_);
        const bool is_request = signal.action == PARAMETERS || signal.action == FILE_REQUEST;
        if (is_request && test_ && !test_->is_over) return answer(from, signal.test, 1);
        if (signal.action == SUMMARY && test_ && test_->signals == from) {
            test_->summary = signal;
            test_->summary_at = Clock::now() + (test_->parameters.mode == 0 || test_->parameters.mode == 3 ? STRAGGLERS : milliseconds(0));
        } else if (is_request) {
            next_ = std::make_unique<Test>();
            next_->signals = from;
            next_->parameters = signal;
            next_->is_files = signal.action == FILE_REQUEST;
            if (next_->is_files && !Receiver::has_room(signal)) {
                next_.reset();
                return answer(from, signal.test, 1);
            }
        }
        changed_.notify_all();
    }

    // The main thread's work: begins and ends tests, prints lines.
    void step() {
        std::unique_ptr<Test> old;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            if (test_ && test_->is_over) old = std::move(test_);
            if (next_ && !test_ && !old) test_ = std::move(next_);
        }
        // Without the lock: it waits for callbacks.
        old.reset();
        std::unique_lock<std::mutex> lock(mutex_);
        if (!test_) return;
        if (!test_->protocol) begin_test();
        else if (!test_->is_listening && test_->tries > 0 && Clock::now() >= test_->listen_at) listen();
        if (test_->files && test_->files->is_done()) finish_files();
        if (!test_->is_files && test_->has_begun) tell_intervals();
        if (test_->summary && Clock::now() >= test_->summary_at) tell_summary();
    }

    void begin_test() {
        BatsConfiguration configuration;
        const int mode = test_->is_files ? 1 : test_->parameters.mode;
        configuration.SetMode(static_cast<TransMode>(mode));
        if (mode != 10) use_pair(configuration, true);
        test_->protocol = std::make_unique<BatsProtocol>(context_);
        test_->tries = LISTEN_TRIES;
        if (!test_->protocol->LoadConfig(configuration)) return refuse();
        if (test_->is_files) test_->files = std::make_unique<Receiver>(test_->parameters, report_, placed_);
        listen();
    }

    void listen() {
        Test *test = test_.get();
        test->listen_at = Clock::now() + std::chrono::hours(1);
        const uint16_t port = test->is_files || test->parameters.port == 0 ? static_cast<uint16_t>(options_.port) : test->parameters.port;
        test->protocol->StartListen(
            address_, port,
            [this, test](const IBatsConnPtr &connection, const BatsListenEvent &event, void *) {
                std::lock_guard<std::mutex> lock(mutex_);
                if (event == BatsListenEvent::BATS_LISTEN_SUCCESS) {
                    test->is_listening = true;
                    if (!test->is_files) report_.header(true);
                    answer(test->signals, test->parameters.test, 0);
                } else if (event == BatsListenEvent::BATS_LISTEN_FAILED) {
                    test->listen_at = Clock::now() + LISTEN_AGAIN;
                    if (--test->tries == 0) refuse(*test);
                } else if (event == BatsListenEvent::BATS_LISTEN_NEW_CONNECTION) {
                    accept(*test, connection);
                }
            },
            nullptr);
    }

    void refuse() { refuse(*test_); }
    void refuse(Test &test) {
        report_.error("cannot listen for the data of the test");
        answer(test.signals, test.parameters.test, 1);
        test.is_over = true;
    }

    void accept(Test &test, const IBatsConnPtr &connection) {
        if (test.is_files) {
            connection->SetConnectionCallback(
                [this, &test, parts = test.files->begin()](const IBatsConnPtr &, const BatsConnEvent &what, const octet *data, int length, void *) {
                    std::lock_guard<std::mutex> lock(mutex_);
                    if (what == BatsConnEvent::BATS_CONNECTION_DATA_RECEIVED) test.files->take(*parts, data, length);
                    changed_.notify_all();
                    return true;
                },
                nullptr);
            return;
        }
        connection->SetConnectionCallback(
            [this, &test, stream = static_cast<Incoming *>(nullptr)](const IBatsConnPtr &from, const BatsConnEvent &what, const octet *data, int length, void *) mutable {
                if (what == BatsConnEvent::BATS_CONNECTION_DATA_RECEIVED) on_data(test, stream, from, data, length);
                return true;
            },
            nullptr);
    }

    void on_data(Test &test, Incoming *&stream, const IBatsConnPtr &from, const octet *data, int length) {
        const auto header = DataHeader::parse(data, length);
        std::lock_guard<std::mutex> lock(mutex_);
        const int mode = test.parameters.mode;
        const bool is_ordered = mode == 1 || mode == 2 || mode == 10;
        if (!header || (is_ordered && header->seq != (stream ? stream->next_seq : 0))) {
            report_.error(header ? "message " + std::to_string(header->seq) + " came instead of " + std::to_string(stream ? stream->next_seq : 0) : "what was received is not what was sent");
            // It is the test that is spoilt: any host that reaches the port could end the server otherwise.
            if (!test.is_over) answer(test.signals, test.parameters.test, 1);
            test.is_over = true;
            return;
        }
        if (!stream) {
            if (!test.has_begun) test.begin = Clock::now();
            test.has_begun = true;
            test.streams.push_back(std::make_unique<Incoming>());
            stream = test.streams.back().get();
            stream->number = ++streams_;
            stream->id = header->stream;
        }
        stream->bytes += static_cast<uint64_t>(length);
        stream->datagrams++;
        stream->next_seq = std::max(stream->next_seq, header->seq + 1);
        // RFC 1889 §6.3.1: the running mean of differences of transit times.
        // Unsigned: the far end says any number.
        const auto transit = static_cast<int64_t>(static_cast<uint64_t>(wall_ms()) - header->sent_ms);
        if (stream->datagrams > 1) stream->jitter += (std::abs(static_cast<double>(transit) - static_cast<double>(stream->transit)) - stream->jitter) / 16;
        stream->transit = transit;
        if (!header->is_last || !is_ordered) return;
        DataHeader acknowledged = *header;
        acknowledged.is_ack = true;
        octetVec reply(data, data + length);
        acknowledged.write(reply.data());
        from->SendData(reply);
    }

    void tell_intervals() {
        const double interval = test_->parameters.interval;
        const int intervals = static_cast<int>(std::clamp(test_->parameters.seconds / interval + 0.5, 1.0, 1e9));
        while (test_->intervals_told < intervals) {
            const double from = test_->intervals_told * interval, to = from + interval;
            const auto end = test_->begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(to));
            // The last one lasts until the end.
            const bool is_last = test_->intervals_told + 1 == intervals && test_->summary && Clock::now() >= test_->summary_at;
            if (Clock::now() < end && !is_last) return;
            for (const auto &stream : test_->streams) {
                const uint64_t bytes = stream->bytes - stream->told_bytes, datagrams = stream->datagrams - stream->told_datagrams, sent = stream->next_seq - stream->told_seq;
                stream->told_bytes = stream->bytes;
                stream->told_datagrams = stream->datagrams;
                stream->told_seq = stream->next_seq;
                const double so_far = std::chrono::duration<double>(Clock::now() - test_->begin).count();
                const double real = is_last ? so_far - from : interval;
                report_.interval(stream->number, from, to, bytes, static_cast<double>(bytes) * 8 / std::max(real, 0.001), static_cast<int64_t>(sent) - static_cast<int64_t>(datagrams), sent, true);
            }
            test_->intervals_told++;
        }
    }

    void tell_summary() {
        // Without data there is no beginning that intervals could count from.
        if (test_->has_begun) tell_intervals();
        const double seconds = std::max(1, test_->intervals_told) * test_->parameters.interval;
        report_.header(true);
        for (const auto &stream : test_->streams) {
            const auto &totals = test_->summary->totals;
            const auto of_sender = std::find_if(totals.begin(), totals.end(), [&](const StreamTotal &total) { return total.id == stream->id; });
            const bool is_known = of_sender != totals.end();
            const uint64_t sent = is_known ? of_sender->datagrams : stream->datagrams;
            const int64_t lost = std::max<int64_t>(0, static_cast<int64_t>(sent) - static_cast<int64_t>(stream->datagrams));
            report_.summary(stream->number, stream->bytes, static_cast<double>(stream->bytes) * 8 / seconds, stream->jitter, lost, sent, true, "receiver");
            if (is_known) report_.summary(stream->number, of_sender->bytes, static_cast<double>(of_sender->rate) * 8, 0, 0, of_sender->datagrams, true, "sender");
        }
        answer(test_->signals, test_->parameters.test, 0);
        test_->is_over = true;
    }

    void finish_files() {
        answer(test_->signals, test_->parameters.test, test_->files->has_failed() ? 1 : 0);
        test_->is_over = true;
    }

    const Options &options_;
    Report &report_;
    IOContext &context_;
    std::atomic<bool> &is_running_;
    std::string address_;
    std::mutex mutex_;
    std::condition_variable changed_;
    Placed placed_;
    std::unique_ptr<Test> test_, next_;
    int streams_ = 0;
    std::atomic<int> status_{0};
};
} // namespace

int run_server(const Options &options, Report &report, IOContext &context, std::atomic<bool> &is_running) { return Server(options, report, context, is_running).run(); }
