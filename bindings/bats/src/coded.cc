#include "coded.h"

#include "identity.h"
#include "log.h"

namespace noctule_bats {

namespace {
// Flows of this interface, so that a far end that is something else is told from one that is not ("bats").
constexpr uint64_t TAG = 0x62617473;
// A BTP message is worth nothing after this time.
constexpr milliseconds LIFETIME{500};
// Bytes of BTP messages that may wait: more would be too old when its turn comes.
constexpr size_t TIMELY_BUFFER = 256 << 10;
// How long the other end may be silent: a connection's own time-out counts data, this one counts signs of life.
constexpr milliseconds LEAST_SILENCE{5000}, MOST_SILENCE{30000};

noctule::EndpointOptions endpoint_options(const Settings &settings) {
    noctule::EndpointOptions options;
    if (const char *name = congestion_name(settings.control)) options.congestion = name;
    options.connect_timeout = connect_timeout(settings);
    options.idle_timeout = std::clamp(milliseconds(settings.timeout), LEAST_SILENCE, MOST_SILENCE);
    if (settings.timeout < SHORTEST_TIMEOUT.count()) options.idle_timeout = MOST_SILENCE;
    options.max_message = LARGEST_MESSAGE;
    // Connections of this interface have no identity to be counted by: many clients may share a key file.
    options.max_sessions_per_key = 1024;
    return options;
}

noctule::FlowOptions flow_options(const Settings &settings) {
    noctule::FlowOptions options;
    options.tag = TAG;
    switch (settings.mode) {
    case BTP:
        options.mode = NOCTULE_MODE_BTP;
        options.kind = NOCTULE_KIND_UNORDERED;
        options.lifetime = LIFETIME;
        options.send_buffer = TIMELY_BUFFER;
        break;
    case TRANSPARENT_MODE:
        options.mode = NOCTULE_MODE_TRANSPARENT;
        options.kind = NOCTULE_KIND_UNORDERED;
        break;
    default: break;
    }
    return options;
}

bool is_timeout(const noctule::Error &error) { return error == NOCTULE_ERROR_UNREACHABLE; }
} // namespace

noctule::Result<SharedEndpoint> client_endpoint(Loop &loop, const Settings &settings) {
    auto options = endpoint_options(settings);
    auto identity = identity_of(settings);
    if (!identity) return identity.error();
    const bool is_bound = settings.local_port != 0 || !settings.local_address.empty();
    if (is_bound) options.authorised = std::vector<std::string>(); // it takes no sessions of others
    const std::string local = settings.local_address.empty() ? "0.0.0.0" : settings.local_address;
    auto made = is_bound ? loop.noctule().listen(*identity, host_and_port(local, static_cast<uint16_t>(settings.local_port)), options)
                         : loop.noctule().client(options, &*identity);
    if (!made) return made.error();
    return std::make_shared<noctule::Endpoint>(*std::move(made));
}

noctule::Result<SharedEndpoint> server_endpoint(Loop &loop, const Settings &settings, const std::string &address) {
    auto identity = identity_of(settings);
    if (!identity) return identity.error();
    if (!settings.cert_file.empty()) {
        auto pinned = pinned_key(settings.cert_file);
        if (!pinned) return pinned.error();
        if (!pinned->empty() && *pinned != identity->public_key())
            return noctule::Error{NOCTULE_ERROR_INVALID_ARGUMENT, settings.cert_file + " names another key than " + (settings.key_file.empty() ? "the fresh one of this server" : settings.key_file) + " has"};
    }
    auto made = loop.noctule().listen(*identity, address, endpoint_options(settings));
    if (!made) return made.error();
    log(Level::info, "listening at " + made->address() + ", public key " + made->public_key());
    return std::make_shared<noctule::Endpoint>(*std::move(made));
}

void Coded::connect(SharedEndpoint endpoint, const std::string &host, const std::string &key) {
    endpoint_ = std::move(endpoint);
    loop_->keep(self());
    std::weak_ptr<Coded> weak = me();
    auto session = endpoint_->connect(host, key, [weak, host, key](const noctule::Error &error) {
        if (auto connection = weak.lock()) connection->connected(error, host, key);
    });
    if (!session) return failed(BatsConnEvent::BATS_CONNECTION_FAILED, "cannot connect to " + host + ": " + session.error().words);
    session_ = *std::move(session);
}

void Coded::connected(const noctule::Error &error, const std::string &host, const std::string &key) {
    if (error) return failed(is_timeout(error) ? BatsConnEvent::BATS_CONNECTION_TIMEOUT : BatsConnEvent::BATS_CONNECTION_FAILED, "cannot connect to " + host + ": " + error.words);
    if (key == "any") {
        static std::atomic<bool> is_told{false};
        auto far = session_.peer_key();
        log(is_told.exchange(true) ? Level::info : Level::warn, host + " is not authenticated: it has the key " + (far ? *far : far.error().words) +
            ", which nothing was known of. To ask for it, put it into the file of SetCertFile, or into NOCTULE_BATS_SERVER_KEY");
    }
    if (!begin()) return;
    const auto keep = self();
    auto remote = session_.address();
    opened(endpoint_->address(), remote ? *remote : host);
    tell_established();
    take_flows();
}

bool Coded::accept(const std::string &local, noctule::Session session) {
    session_ = std::move(session);
    loop_->keep(self());
    if (!begin()) return false;
    auto far = session_.address();
    opened(local, far ? *far : std::string());
    take_flows();
    return true;
}

bool Coded::begin() {
    std::weak_ptr<Coded> weak = me();
    auto flow = session_.open_messages(flow_options(settings_));
    // A far end that has left already is told with `on_closed`, after what it sent.
    const bool has_left = session_.outcome() || (!flow && flow.error() == NOCTULE_ERROR_CLOSED);
    if (!flow && !has_left) {
        failed(BatsConnEvent::BATS_CONNECTION_FAILED, "the connection was lost at once: " + flow.error().words);
        return false;
    }
    if (flow) {
        out_ = *std::move(flow);
        out_.on_writable([weak] {
            if (auto connection = weak.lock()) connection->room();
        });
        out_id_ = out_.handle().id;
    }
    session_.on_flow([weak] {
        if (auto connection = weak.lock()) connection->take_flows();
    });
    session_.on_closed([weak] {
        if (auto connection = weak.lock()) connection->closed();
    });
    return true;
}

void Coded::take_flows() {
    while (session_) {
        auto flow = session_.accept();
        if (!flow) return;
        if (flow->tag() != TAG || flow->is_stream() || in_) {
            log(Level::warn, "the far end has opened a flow that is none of a BATS connection: it is not read");
            continue;
        }
        in_ = *std::move(flow);
        std::weak_ptr<Coded> weak = me();
        in_.on_readable([weak] {
            if (auto connection = weak.lock()) connection->pump();
        });
        pump();
    }
}

Connection::Next Coded::next(Chunk &chunk) {
    if (!in_) return Next::none;
    auto &scratch = loop_->scratch();
    size_t length = 0;
    // This interface has no empty messages, and its programs do not expect any: a far end of another make may send them.
    while (length == 0) {
        const noctule_error code = noctule_flow_recv(in_.handle(), scratch.data(), scratch.size(), &length, nullptr);
        if (code == NOCTULE_ERROR_WOULD_BLOCK) return Next::none;
        if (code != NOCTULE_ERROR_OK) return Next::end;
    }
    chunk = {scratch.data(), static_cast<int>(length)};
    return Next::message;
}

Sent Coded::put(const octet *data, int length) {
    switch (noctule_flow_send(noctule_flow{out_id_}, data, static_cast<size_t>(length), nullptr, nullptr)) {
    case NOCTULE_ERROR_OK: return Sent::yes;
    case NOCTULE_ERROR_WOULD_BLOCK: return Sent::full;
    default: return Sent::closed;
    }
}

bool Coded::is_delivered(bool &is_sent) {
    const auto stats = out_.stats(true);
    is_sent = stats.waiting == 0;
    return is_sent && stats.outstanding == 0;
}

void Coded::begin_close() {
    if (is_closing_) return;
    is_closing_ = true;
    out_.finish();
    if (noctule::Error error = session_.close()) ended(BatsConnEvent::BATS_CONNECTION_CLOSED);
}

void Coded::closed() {
    auto outcome = session_.outcome();
    if (!outcome) return;
    log(Level::debug, std::string("session over: ") + outcome->reason);
    // 0x14: nothing was heard for the time-out. 0x19: the far end's process is gone.
    const bool is_theirs = (outcome->is_remote && outcome->code != 0x14) || outcome->code == 0x19;
    far_over(is_theirs ? BatsConnEvent::BATS_CONNECTION_SHUTDOWN_BY_PEER : BatsConnEvent::BATS_CONNECTION_CLOSED);
}

void Coded::release() {
    out_id_ = 0;
    in_.reset();
    out_.reset();
    session_.reset();
    endpoint_.reset();
}

} // namespace noctule_bats
