// The client: opens streams, fills them for the duration of the test, and reports the figures of both ends.
#include "files.h"
#include "link.h"
#include "roles.h"
#include "wire.h"

#include <thread>

namespace {
constexpr milliseconds TO_CLOSE{10000};
// Milliseconds without data after which a connection ends.
constexpr int SIGNALS_IDLE = 1000000, STREAM_IDLE = 5000;

struct Outgoing {
    int number = 0;
    uint64_t id = 0;
    Link link;
    bool is_acked = false;
    // Written by the thread that sends, read by the one that reports.
    std::atomic<uint64_t> bytes{0}, datagrams{0};
    uint64_t told_bytes = 0, told_datagrams = 0;
    bool is_connected = false, has_failed = false;
};

BatsConfiguration configured(int mode, int timeout) {
    BatsConfiguration configuration;
    configuration.SetMode(static_cast<TransMode>(mode));
    configuration.SetTimeout(timeout);
    if (mode != 10) use_pair(configuration, false);
    return configuration;
}

bool is_reliable(int mode) { return mode == 1 || mode == 2 || mode == 10; }

// Sends until the time is up. The colour changes with each interval; the first message of a colour carries the figures of the previous interval.
void fill(Outgoing &stream, const Options &options, Clock::time_point begin, const std::atomic<bool> &is_running) {
    const auto end = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.seconds));
    const uint32_t length = stream.link.connection()->GetIdealBufferLength();
    octetVec message(length, FILLER);
    DataHeader header;
    header.stream = stream.id;
    int interval = 0;
    uint64_t first = 0, bytes_before = 0;
    while (is_running) {
        const auto now = Clock::now();
        if (now >= end) break;
        const std::chrono::duration<double> since = now - begin;
        if (options.bandwidth > 0 && static_cast<double>(stream.bytes) * 8 > options.bandwidth * 1e6 * since.count()) {
            std::this_thread::sleep_for(std::chrono::microseconds(200));
            continue;
        }
        const int current = static_cast<int>(since.count() / options.interval);
        header.seq = stream.datagrams;
        header.has_interval = current != interval;
        if (header.has_interval) {
            const uint64_t bytes = stream.bytes - bytes_before;
            header.interval = {first, bytes, header.seq - first, static_cast<uint64_t>(static_cast<double>(bytes) / options.interval)};
            first = header.seq;
            bytes_before = stream.bytes;
            interval = current;
        }
        header.colour = interval % 2;
        header.sent_ms = wall_ms();
        // Overwrites the figures of an interval, which a previous message may have carried.
        std::fill(message.begin() + DATA_HEADER, message.begin() + DATA_HEADER + INTERVAL_BLOCK, FILLER);
        header.write(message.data());
        if (!stream.link.send(message, end)) {
            stream.has_failed = stream.link.is_over();
            if (stream.has_failed) return;
            continue;
        }
        stream.bytes += length;
        stream.datagrams++;
    }
    if (!is_reliable(options.mode)) return;
    header.seq = stream.datagrams;
    header.is_last = true;
    header.has_interval = false;
    header.sent_ms = wall_ms();
    header.write(message.data());
    if (!stream.link.send(message, Clock::now() + TO_CLOSE) || !stream.link.wait(TO_CLOSE, [&] { return stream.is_acked; })) stream.has_failed = true;
    stream.bytes += length;
    stream.datagrams++;
}
} // namespace

int run_client(const Options &options, Report &report, IOContext &context, std::atomic<bool> &is_running) {
    const std::string signals = std::to_string(options.port - 1);
    report.version();
    report.rule();
    report.line("Connecting to host " + options.host + ", port " + signals);
    report.rule();

    Link signal_link;
    int answers = 0, refusal = 0;
    signal_link.on_data = [&](const octet *data, int length) {
        const auto signal = Signal::parse(data, length);
        if (!signal || signal->action != ANSWER) return;
        signal_link.change([&] {
            answers++;
            refusal = static_cast<int>(signal->p[0]);
        });
    };
    FileList files;
    if (!options.files.empty()) {
        files = FileList::of(options, report);
        if (files.files.empty()) return 1;
    }
    std::vector<std::unique_ptr<Outgoing>> streams;
    std::vector<std::unique_ptr<Link>> links;
    BatsProtocol protocol(context, configured(10, SIGNALS_IDLE));
    if (!signal_link.connect(protocol, options.host, static_cast<uint16_t>(options.port - 1), 1, TO_CONNECT)) {
        report.line("Client failed to connect to host " + options.host + ", port " + signals);
        return 1;
    }
    // From here on this connection is idle while the streams run.
    if (!options.files.empty()) return send_files(std::move(files), options, report, protocol, signal_link, links, answers, refusal);

    Signal request;
    request.test = static_cast<uint32_t>(monotonic_ms());
    request.action = PARAMETERS;
    request.streams = static_cast<uint8_t>(options.streams);
    request.interval = options.interval;
    request.seconds = options.seconds;
    request.mode = static_cast<uint8_t>(options.mode);
    request.port = static_cast<uint16_t>(options.port);
    if (!signal_link.send(request.bytes()) || !signal_link.wait(TO_CONNECT, [&] { return answers > 0; })) {
        report.error("the server does not answer the parameters of the test");
        return 1;
    }
    if (refusal != 0) {
        report.error("the server has another test, or cannot listen for this one");
        return 1;
    }

    for (int i = 0; i < options.streams; i++) {
        auto stream = std::make_unique<Outgoing>();
        stream->number = i + 1;
        stream->id = monotonic_ms() + static_cast<uint64_t>(i);
        Outgoing *raw = stream.get();
        raw->link.on_data = [raw](const octet *data, int length) {
            const auto header = DataHeader::parse(data, length);
            if (header && header->is_last && header->is_ack) raw->link.change([raw] { raw->is_acked = true; });
        };
        streams.push_back(std::move(stream));
    }
    BatsProtocol data(context, configured(options.mode, STREAM_IDLE));
    std::vector<std::thread> threads;
    for (const auto &stream : streams)
        threads.emplace_back([&, raw = stream.get()] { raw->is_connected = raw->link.connect(data, options.host, static_cast<uint16_t>(options.port), TRIES, TO_CONNECT); });
    for (auto &thread : threads) thread.join();
    threads.clear();
    for (const auto &stream : streams) {
        if (stream->is_connected) continue;
        report.error("Unable to establish stream " + std::to_string(stream->number) + " to " + options.host + ", port " + std::to_string(options.port));
        return 1;
    }

    report.header(false);
    const auto begin = Clock::now();
    std::atomic<int> sending{options.streams};
    for (const auto &stream : streams)
        threads.emplace_back([&, raw = stream.get()] {
            fill(*raw, options, begin, is_running);
            sending--;
        });
    const int intervals = options.intervals();
    for (int i = 0; i < intervals; i++) {
        const double from = i * options.interval, to = std::min((i + 1) * options.interval, options.seconds);
        const auto end = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(to));
        while (Clock::now() < end && sending > 0) std::this_thread::sleep_for(std::min<Clock::duration>(end - Clock::now(), milliseconds(20)));
        if (sending == 0 && Clock::now() < end) break;
        for (const auto &stream : streams) {
            const uint64_t bytes = stream->bytes - stream->told_bytes, datagrams = stream->datagrams - stream->told_datagrams;
            stream->told_bytes += bytes;
            stream->told_datagrams += datagrams;
            report.interval(stream->number, from, to, bytes, static_cast<double>(bytes) * 8 / (to - from), 0, datagrams, false);
        }
    }
    for (auto &thread : threads) thread.join();

    Signal summary;
    summary.test = request.test;
    summary.action = SUMMARY;
    summary.streams = static_cast<uint8_t>(options.streams);
    for (const auto &stream : streams)
        summary.totals.push_back({stream->id, stream->bytes, stream->datagrams, static_cast<uint64_t>(static_cast<double>(stream->bytes) / options.seconds)});
    answers = 0;
    const bool is_told = signal_link.send(summary.bytes()) && signal_link.wait(TO_CLOSE, [&] { return answers > 0; });
    report.header(false);
    int status = 0;
    for (const auto &stream : streams) {
        report.summary(stream->number, stream->bytes, static_cast<double>(stream->bytes) * 8 / options.seconds, 0, 0, stream->datagrams, false, "sender");
        if (!stream->has_failed) continue;
        report.error("stream " + std::to_string(stream->number) + " broke off, or its end was not confirmed");
        status = 1;
    }
    if (!is_told) {
        report.error("the server did not take the summary");
        status = 1;
    }
    return is_running ? status : 1;
}
