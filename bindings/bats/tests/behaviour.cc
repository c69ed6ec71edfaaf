// What programs of the BATS API rely on: behaviour TEST. Both ends are in here, over loopback.
#include "ends.h"

#include <noctule.hpp>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <sys/stat.h>

using namespace ends;

namespace {
void order() {
    for (const int mode : {0, 1, 2, 3, 10}) {
        Pair pair(mode);
        // The far end answers from inside its callback.
        pair.far.also = [&](const IBatsConnPtr &connection, E event, const octet *data, int length) {
            if (event == E::BATS_CONNECTION_DATA_RECEIVED) send(connection, std::string(reinterpret_cast<const char *>(data), length));
            return true;
        };
        pair.near.also = [&](const IBatsConnPtr &connection, E event, const octet *, int) {
            if (event == E::BATS_CONNECTION_ESTABLISHED) CHECK(connection->GetIdealBufferLength() > 361 && connection->GetIdealBufferLength() <= 150000);
            return true;
        };
        pair.connect();
        const auto connection = pair.near.connection();
        CHECK(connection->IsWritable());
        CHECK(connection->GetRemotePort() == pair.port);
        const int ideal = static_cast<int>(connection->GetIdealBufferLength());
        const std::vector<int> lengths = {1, 40, ideal, 17, ideal, ideal - 1};
        for (size_t i = 0; i < lengths.size(); i++) {
            send(connection, std::string(lengths[i], static_cast<char>('a' + i)));
            // Unreliable modes keep no order: the next message waits for the echo of this one.
            if (mode == 0 || mode == 3) pair.near.wait([&] { return pair.near.messages.size() > i; });
        }
        pair.near.wait([&] { return pair.near.messages.size() >= lengths.size(); });
        for (size_t i = 0; i < lengths.size(); i++) CHECK(pair.near.messages[i] == std::string(lengths[i], static_cast<char>('a' + i)));
        pair.near.wait_for(E::BATS_CONNECTION_SEND_COMPLETE);
        if (mode != 0 && mode != 3) {
            // The event repeats while nothing is sent, and comes to the new callback after a change of it.
            pair.near.wait_for(E::BATS_CONNECTION_ALL_DATA_ACKED, 4);
            End other;
            connection->SetConnectionCallback(other.callback(), &other);
            other.wait_for(E::BATS_CONNECTION_ALL_DATA_ACKED, 2);
            connection->SetConnectionCallback(pair.near.callback(), &pair.near);
            pair.near.wait_for(E::BATS_CONNECTION_ALL_DATA_ACKED, 5);
        }
        pair.client->StopConnection(connection);
        pair.near.wait_for(E::BATS_CONNECTION_CLOSED);
        pair.far.wait_for(E::BATS_CONNECTION_SHUTDOWN_BY_PEER);
        CHECK(!connection->IsWritable() && !connection->SendData(octetVec(1)));
        CHECK(pair.near.events[0] == E::BATS_CONNECTION_ESTABLISHED && pair.near.events[1] == E::BATS_CONNECTION_WRITABLE);
        CHECK(pair.near.events.back() == E::BATS_CONNECTION_CLOSED);
        CHECK(pair.far.listen_events[0] == L::BATS_LISTEN_SUCCESS && pair.far.listen_events[1] == L::BATS_LISTEN_NEW_CONNECTION);
        pair.server->StopListen();
        pair.far.wait_for(L::BATS_LISTEN_STOPPED);
    }
}

void threads() {
    Pair pair(1);
    pair.connect();
    pair.client->StartConnect("127.0.0.1", pair.port, pair.near.callback(), &pair.near);
    pair.near.wait_for(E::BATS_CONNECTION_ESTABLISHED, 2);
    for (int i = 0; i < 50; i++)
        for (const auto &connection : {pair.near.connections[0], pair.near.connections[1]}) send(connection, "x");
    pair.far.wait([&] { return pair.far.messages.size() == 100; });
    std::lock_guard<std::mutex> near(pair.near.mutex), far(pair.far.mutex);
    // Callbacks run on one thread for each context, never on this one.
    CHECK(pair.near.threads.size() == 1 && pair.far.threads.size() == 1);
    CHECK(pair.near.threads != pair.far.threads && pair.near.threads.count(std::this_thread::get_id()) == 0);
}

void lengths() {
    for (const int mode : {1, 10}) {
        Pair pair(mode);
        const auto connection = pair.connect().near.connection();
        const int ideal = static_cast<int>(connection->GetIdealBufferLength());
        const octetVec block(ideal + 1);
        CHECK(!connection->SendData(nullptr, 5));
        CHECK(!connection->SendData(block.data(), 0));
        CHECK(!connection->SendData(block.data(), -1));
        CHECK(!connection->SendData(block.data(), ideal + 1));
        CHECK(!connection->SendData(octetVec()) && !connection->SendData(block));
        CHECK(connection->SendData(block.data(), ideal));
        pair.far.wait([&] { return pair.far.messages.size() == 1; });
    }
}

// A far end of another make, which sends an empty message between two others.
void empty_messages() {
    Pair pair(1);
    pair.server->StartListen("127.0.0.1", pair.port, pair.far.listener(), &pair.far);
    pair.far.wait_for(L::BATS_LISTEN_SUCCESS);
    auto context = noctule::Context::make();
    CHECK(context);
    auto endpoint = context->client();
    CHECK(endpoint);
    bool is_connected = false;
    auto session = endpoint->connect("127.0.0.1:" + std::to_string(pair.port), "any", [&](const noctule::Error &error) { is_connected = !error; });
    CHECK(session && !context->run([&] { return is_connected; }));
    noctule::FlowOptions options;
    options.tag = 0x62617473;
    auto flow = session->open_messages(options);
    CHECK(flow);
    for (const std::string text : {"one", "", "two"})
        CHECK(noctule_flow_send(flow->handle(), reinterpret_cast<const uint8_t *>(text.data()), text.size(), nullptr, nullptr) == NOCTULE_ERROR_OK);
    pair.far.wait([&] { return pair.far.messages.size() == 2; });
    CHECK(pair.far.messages[0] == "one" && pair.far.messages[1] == "two");
}

void offered_again() {
    for (const int mode : {1, 10}) {
        Pair pair(mode);
        int refused = 0;
        pair.far.also = [&](const IBatsConnPtr &, E event, const octet *data, int length) {
            if (event != E::BATS_CONNECTION_DATA_RECEIVED || refused == 3) return true;
            CHECK(std::string(reinterpret_cast<const char *>(data), length) == "first");
            refused++;
            return false;
        };
        const auto connection = pair.connect().near.connection();
        send(connection, "first");
        send(connection, "second");
        pair.far.wait([&] { return pair.far.messages.size() == 2; });
        CHECK(refused == 3 && pair.far.messages[0] == "first" && pair.far.messages[1] == "second");
    }
}

// Data and the far end's close that came before the callback was set are handed over once it is.
void held() {
    for (const int mode : {1, 10}) {
        Pair pair(mode);
        IBatsConnPtr accepted;
        std::mutex mutex;
        pair.server->StartListen(
            "127.0.0.1", pair.port,
            [&](const IBatsConnPtr &connection, const L &event, void *) {
                std::lock_guard<std::mutex> lock(mutex);
                if (event == L::BATS_LISTEN_NEW_CONNECTION) accepted = connection;
            },
            nullptr);
        pair.client->StartConnect("127.0.0.1", pair.port, pair.near.callback(), &pair.near);
        pair.near.wait_for(E::BATS_CONNECTION_WRITABLE);
        for (int i = 0; i < 3; i++) send(pair.near.connection(), std::string(1000, static_cast<char>('a' + i)));
        pair.near.wait_for(E::BATS_CONNECTION_ALL_DATA_ACKED);
        pair.client->StopConnection(pair.near.connection());
        pair.near.wait_for(E::BATS_CONNECTION_CLOSED);
        std::this_thread::sleep_for(Ms(100));
        {
            std::lock_guard<std::mutex> lock(mutex);
            CHECK(accepted);
            accepted->SetConnectionCallback(pair.far.callback(), &pair.far);
        }
        pair.far.wait_for(E::BATS_CONNECTION_SHUTDOWN_BY_PEER);
        CHECK(pair.far.messages.size() == 3 && pair.far.messages[2] == std::string(1000, 'c'));
    }
}

void exceptions() {
    Pair pair(1);
    pair.far.also = [&](const IBatsConnPtr &, E event, const octet *, int) -> bool {
        if (event == E::BATS_CONNECTION_DATA_RECEIVED) {
            std::lock_guard<std::mutex> lock(pair.far.mutex);
            pair.far.running--;
            throw std::runtime_error("thrown on purpose");
        }
        return true;
    };
    send(pair.connect().near.connection(), "x");
    // A callback that throws closes its connection, and no other one.
    pair.near.wait_for(E::BATS_CONNECTION_SHUTDOWN_BY_PEER);
    pair.far.wait_for(E::BATS_CONNECTION_CLOSED);
    pair.client->StartConnect("127.0.0.1", pair.port, pair.near.callback(), &pair.near);
    pair.near.wait_for(E::BATS_CONNECTION_ESTABLISHED, 2);
}

void destroyed_in_callbacks() {
    for (const int mode : {1, 10}) {
        for (int what = 0; what < 3; what++) {
            auto pair = std::make_unique<Pair>(mode);
            auto *raw = pair.get();
            std::mutex mutex;
            std::condition_variable changed;
            bool is_done = false;
            raw->far.also = [&, what](const IBatsConnPtr &connection, E event, const octet *, int) {
                if (event != E::BATS_CONNECTION_DATA_RECEIVED) return true;
                if (what == 0) raw->server->StopConnection(connection);
                if (what >= 1) raw->server.reset();
                if (what == 2) raw->far_context.reset();
                std::lock_guard<std::mutex> lock(mutex);
                is_done = true;
                changed.notify_all();
                return true;
            };
            const auto connection = raw->connect().near.connection();
            send(connection, "x");
            raw->near.wait_for(E::BATS_CONNECTION_SHUTDOWN_BY_PEER);
            std::unique_lock<std::mutex> lock(mutex);
            CHECK(changed.wait_for(lock, PATIENCE, [&] { return is_done; }));
            CHECK(!connection->SendData(octetVec(1)));
        }
    }
}

void blocking_callbacks() {
    for (const int mode : {1, 10}) {
        Pair pair(mode);
        Gate gate(pair.far);
        const auto connection = pair.connect().near.connection();
        const std::string block(connection->GetIdealBufferLength(), 'b');
        // More than the sender may buffer: packets are still received while the far end's callback waits.
        for (int i = 0; i < 12; i++) send(connection, block);
        gate.open();
        pair.far.wait([&] { return pair.far.messages.size() == 12; });
    }
}

// A far end that closed before its connection was accepted: its data comes first, then the close, as with TCP.
void gone_before_accepted() {
    for (const int mode : {1, 2, 10}) {
        Pair pair(mode);
        Gate gate(pair.far);
        // The listener's thread is kept busy by the first connection.
        send(pair.connect().near.connection(), "busy");
        End second;
        pair.client->StartConnect("127.0.0.1", pair.port, second.callback(), &second);
        second.wait_for(E::BATS_CONNECTION_WRITABLE);
        send(second.connection(), "and gone");
        if (mode != 10) second.wait_for(E::BATS_CONNECTION_ALL_DATA_ACKED);
        pair.client->StopConnection(second.connection());
        second.wait_for(E::BATS_CONNECTION_CLOSED);
        gate.open();
        pair.far.wait_for(E::BATS_CONNECTION_SHUTDOWN_BY_PEER);
        CHECK(pair.far.messages.size() == 2 && pair.far.messages[1] == "and gone");
        CHECK(std::count(pair.far.listen_events.begin(), pair.far.listen_events.end(), L::BATS_LISTEN_NEW_CONNECTION) == 2);
    }
}

void refused() {
    Pair pair(1);
    pair.connect();
    // A second listener of the same protocol, and one on the same port.
    pair.server->StartListen("127.0.0.1", free_port(), pair.far.listener(), &pair.far);
    pair.far.wait_for(L::BATS_LISTEN_ALREADY_IN_LISTEN);
    End end;
    BatsProtocol other(*pair.context, configured(1));
    other.StartListen("127.0.0.1", pair.port, end.listener(), &end);
    end.wait_for(L::BATS_LISTEN_FAILED);
    // A connection of another protocol, and none.
    other.StopConnection(pair.near.connection());
    other.StopConnection(nullptr);
    send(pair.near.connection(), "still there");
    pair.far.wait([&] { return pair.far.messages.size() == 1; });
    // Modes that noctule does not have.
    for (const int mode : {11, 12, 77}) {
        CHECK(!other.LoadConfig(configured(mode)));
        End none;
        other.StartConnect("127.0.0.1", pair.port, none.callback(), &none);
        none.wait_for(E::BATS_CONNECTION_FAILED);
        other.StartListen("127.0.0.1", free_port(), none.listener(), &none);
        none.wait_for(L::BATS_LISTEN_FAILED);
    }
    for (const int mode : {1, 10}) {
        CHECK(other.LoadConfig(configured(mode)));
        // No such host, a closed port, port 0, no address.
        const std::vector<std::pair<std::string, int>> nowhere = {{"no-such-host.invalid", 9}, {"127.0.0.1", free_port()}, {"127.0.0.1", 0}, {"", 9}};
        for (const auto &[host, port] : nowhere) {
            End none;
            other.StartConnect(host, static_cast<uint16_t>(port), none.callback(), &none);
            none.wait_for(E::BATS_CONNECTION_FAILED);
            CHECK(none.events.size() == 1);
        }
    }
    // A host that does not answer.
    const int silent = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    CHECK(bind(silent, reinterpret_cast<sockaddr *>(&address), length) == 0 && getsockname(silent, reinterpret_cast<sockaddr *>(&address), &length) == 0);
    BatsConfiguration hasty = configured(1);
    hasty.SetTimeout(1000);
    CHECK(other.LoadConfig(hasty));
    End none;
    other.StartConnect("127.0.0.1", ntohs(address.sin_port), none.callback(), &none);
    none.wait_for(E::BATS_CONNECTION_TIMEOUT);
    close(silent);
}

void keys() {
    const auto write = [](const std::string &path, const std::string &text, mode_t mode = 0600) {
        std::ofstream(path) << text;
        CHECK(chmod(path.c_str(), mode) == 0);
        return path;
    };
    const std::string cert = directory + "/server.cert", key = directory + "/server.key", pin = directory + "/pin", other = directory + "/other";
    // What openssl writes: any bytes do for a key that is only hashed.
    const std::string body(88, 'A'), pem = "-----BEGIN PRIVATE KEY-----\n" + body + "\n-----END PRIVATE KEY-----\n";
    write(cert, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    write(key, pem);
    // The key that goes with it, and one that does not.
    write(pin, std::getenv("EXPECTED_KEY"));
    write(other, std::getenv("OTHER_KEY"));
    BatsConfiguration server = configured(1);
    server.SetCertFile(cert);
    server.SetKeyFile(key);
    Pair pair(1, &server);
    pair.connect();
    const auto outcome = [&](const BatsConfiguration &configuration, E event) {
        End end;
        BatsProtocol client(*pair.context, configuration);
        client.StartConnect("127.0.0.1", pair.port, end.callback(), &end);
        end.wait_for(event);
    };
    BatsConfiguration client = configured(1);
    client.SetTimeout(1000);
    client.SetCertFile(pin);
    outcome(client, E::BATS_CONNECTION_ESTABLISHED);
    client.SetCertFile(other);
    // A server does not answer what is sealed for another key; when the time is up, the log says which key it has.
    outcome(client, E::BATS_CONNECTION_FAILED);
    // Files that are not there, or no keys.
    client.SetCertFile(directory + "/nothing");
    outcome(client, E::BATS_CONNECTION_FAILED);
    client = configured(1);
    client.SetKeyFile(write(directory + "/junk", "junk"));
    outcome(client, E::BATS_CONNECTION_FAILED);
    client.SetKeyFile(write(directory + "/locked", "-----BEGIN ENCRYPTED PRIVATE KEY-----\n" + body + "\n-----END ENCRYPTED PRIVATE KEY-----\n"));
    outcome(client, E::BATS_CONNECTION_FAILED);
    CHECK(mkfifo((directory + "/fifo").c_str(), 0600) == 0);
    client.SetKeyFile(directory + "/fifo");
    outcome(client, E::BATS_CONNECTION_FAILED);
    // A server whose certificate names another key.
    End end;
    server.SetCertFile(other);
    BatsProtocol wrong(*pair.context, server);
    wrong.StartListen("127.0.0.1", free_port(), end.listener(), &end);
    end.wait_for(L::BATS_LISTEN_FAILED);
}

void lifetimes() {
    IBatsConnPtr near, far;
    {
        Pair pair(1);
        near = pair.connect().near.connection();
        far = pair.far.connection();
        // What was sent is delivered although the protocol goes at once.
        send(near, "last words");
        pair.client.reset();
        CHECK(!near->SendData(octetVec(1)) && !near->IsWritable());
        pair.far.wait_for(E::BATS_CONNECTION_SHUTDOWN_BY_PEER);
        CHECK(pair.far.messages.size() == 1 && pair.far.messages[0] == "last words");
    }
    for (const auto &connection : {near, far}) {
        CHECK(!connection->SendData(octetVec(1)) && !connection->IsWritable() && !connection->SendFile("/dev/null"));
        CHECK(connection->GetRemoteAddress() == "127.0.0.1" && connection->GetIdealBufferLength() > 0);
        connection->SetConnectionCallback([](const IBatsConnPtr &, const E &, const octet *, int, void *) { return true; }, nullptr);
    }
}

void idle() {
    BatsConfiguration configuration = configured(1);
    configuration.SetTimeout(1000);
    Pair pair(1, &configuration);
    pair.connect();
    pair.near.wait([&] { return pair.near.count(E::BATS_CONNECTION_CLOSED) + pair.near.count(E::BATS_CONNECTION_SHUTDOWN_BY_PEER) > 0; });
    pair.far.wait([&] { return pair.far.count(E::BATS_CONNECTION_CLOSED) + pair.far.count(E::BATS_CONNECTION_SHUTDOWN_BY_PEER) > 0; });
    CHECK(pair.near.count(E::BATS_CONNECTION_CLOSED) + pair.far.count(E::BATS_CONNECTION_CLOSED) > 0);
}

void files() {
    std::string content(700001, '\0');
    for (size_t i = 0; i < content.size(); i++) content[i] = static_cast<char>(i * i >> 5);
    const std::string path = directory + "/file";
    std::ofstream(path, std::ios::binary) << content;
    for (const int mode : {1, 10}) {
        Pair pair(mode);
        const auto connection = pair.connect().near.connection();
        CHECK(!connection->SendFile(directory + "/nothing") && !connection->SendFile(directory));
        CHECK(connection->SendFile(path));
        const auto whole = [&] {
            std::string all;
            for (const auto &message : pair.far.messages) all += message;
            return all;
        };
        pair.far.wait([&] { return whole().size() == content.size(); });
        CHECK(whole() == content);
        pair.near.wait_for(E::BATS_CONNECTION_ALL_DATA_ACKED);
        // Room for messages again.
        send(connection, "after");
        pair.far.wait([&] { return pair.far.messages.back() == "after"; });
    }
    Pair pair(0);
    CHECK(!pair.connect().near.connection()->SendFile(path));
}

void signals() {
    std::mutex mutex;
    std::condition_variable changed;
    int told = 0;
    // A shell's job in the background has it ignored.
    struct sigaction before {}, now {};
    sigaction(SIGINT, nullptr, &before);
    {
        IOContext one, other;
        for (IOContext *context : {&one, &other})
            context->SetSignalCallback([&](int signal) {
                CHECK(signal == SIGINT);
                std::lock_guard<std::mutex> lock(mutex);
                told++;
                changed.notify_all();
            });
        raise(SIGINT);
        std::unique_lock<std::mutex> lock(mutex);
        CHECK(changed.wait_for(lock, PATIENCE, [&] { return told == 2; }));
    }
    sigaction(SIGINT, nullptr, &now);
    CHECK(now.sa_handler == before.sa_handler);
}

void configurations() {
    BatsConfiguration one = configured(1);
    one.SetRemoteAddr("192.0.2.1");
    BatsConfiguration copy(one), assigned;
    assigned = one;
    one.SetRemoteAddr("192.0.2.2");
    for (const BatsConfiguration *kept : {&copy, &assigned}) {
        std::ostringstream text;
        text << *kept;
        CHECK(text.str().find("192.0.2.1") != std::string::npos);
    }
    static_assert(sizeof(IOContext) == 16 && sizeof(BatsConfiguration) == 8 && sizeof(BatsProtocol) == 32, "objects that were linked before keep their layout");
    static_assert(static_cast<int>(CongestionControl::GCC) == 5 && static_cast<int>(E::BATS_CONNECTION_ALL_DATA_ACKED) == 14 && static_cast<int>(L::BATS_LISTEN_STOPPED) == 6, "numbers");
}

// Number of entries of a directory, such as /proc/self/fd.
size_t entries(const char *directory) { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory), std::filesystem::directory_iterator())); }

void open_and_drop(long wanted) {
    for (const int mode : {1, 10}) {
        Pair pair(mode);
        pair.connect();
        const size_t descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
        long opened = 1;
        while (opened < wanted) {
            // A few at a time: a server limits the rate of handshakes from one host.
            for (int i = 0; i < 9; i++) pair.client->StartConnect("127.0.0.1", pair.port, pair.near.callback(), &pair.near);
            opened += 9;
            pair.near.wait_for(E::BATS_CONNECTION_ESTABLISHED, opened);
            std::vector<IBatsConnPtr> connections;
            {
                std::lock_guard<std::mutex> lock(pair.near.mutex);
                connections.swap(pair.near.connections);
            }
            for (const auto &connection : connections) pair.client->StopConnection(connection);
            pair.near.wait_for(E::BATS_CONNECTION_CLOSED, opened);
            pair.far.wait_for(E::BATS_CONNECTION_SHUTDOWN_BY_PEER, opened);
            std::lock_guard<std::mutex> lock(pair.far.mutex);
            pair.far.connections.clear();
        }
        // Descriptors go when the last reference does, which may be a moment later.
        for (int i = 0; entries("/proc/self/fd") > descriptors || entries("/proc/self/task") > threads; i++) {
            CHECK(i < 2000);
            std::this_thread::sleep_for(Ms(10));
        }
    }
}

void many() { open_and_drop(100); }
// Run by hand: with a server's limit of handshakes from one host it takes most of a minute.
void thousand() { open_and_drop(1000); }

// A library of another version: this program was linked with a library whose header has another ABI.
void version() {
    IOContext context;
    BatsProtocol protocol(context, configured(1));
    End end;
    protocol.StartConnect("127.0.0.1", free_port(), end.callback(), &end);
    end.wait_for(E::BATS_CONNECTION_FAILED);
    protocol.StartListen("127.0.0.1", free_port(), end.listener(), &end);
    end.wait_for(L::BATS_LISTEN_FAILED);
}
} // namespace

int main(int argc, char **argv) {
    const std::map<std::string, void (*)()> tests = {
        {"order", order}, {"threads", threads}, {"lengths", lengths}, {"empty_messages", empty_messages}, {"offered_again", offered_again}, {"held", held}, {"exceptions", exceptions},
        {"destroyed_in_callbacks", destroyed_in_callbacks}, {"blocking_callbacks", blocking_callbacks}, {"gone_before_accepted", gone_before_accepted}, {"refused", refused}, {"keys", keys},
        {"lifetimes", lifetimes}, {"idle", idle}, {"files", files}, {"signals", signals}, {"configurations", configurations}, {"many", many}, {"thousand", thousand}, {"version", version}};
    const auto found = tests.find(argc > 1 ? argv[1] : "");
    if (found == tests.end()) return 2;
    if (argc > 2) directory = argv[2];
    found->second();
    return 0;
}
