// Tests of the C++ header: `objects TEST`.
#include "noctule.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <malloc.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define CHECK(condition)                                                                             \
    do {                                                                                             \
        if (!(condition)) {                                                                          \
            std::fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__, #condition, \
                         noctule_last_error());                                                      \
            std::exit(1);                                                                            \
        }                                                                                            \
    } while (0)

using namespace noctule;

static_assert(!std::is_copy_constructible_v<Flow> && !std::is_copy_constructible_v<Session> && !std::is_copy_constructible_v<Context>);
static_assert(std::is_nothrow_move_constructible_v<Flow> && std::is_nothrow_move_assignable_v<Flow>);

struct World {
    Context context;
    Identity identity;
    Endpoint server, client;
    Session there, here;

    static World open() {
        auto context = Context::make(2);
        CHECK(context);
        auto identity = Identity::generate();
        CHECK(identity);
        EndpointOptions options;
        options.congestion = "cubic";
        auto server = context->listen(*identity, "127.0.0.1:0", options);
        CHECK(server);
        auto client = context->client();
        CHECK(client);
        return {*std::move(context), *std::move(identity), *std::move(server), *std::move(client), {}, {}};
    }

    void connect() {
        bool is_connected = false;
        auto made = client.connect(server.address(), identity.public_key(), [&](const Error &error) {
            CHECK(!error);
            is_connected = true;
        });
        CHECK(made);
        here = *std::move(made);
        server.on_session([this] {
            auto session = server.accept();
            CHECK(session);
            there = *std::move(session);
            CHECK(server.accept().error().would_block());
        });
        CHECK(!context.run([&] { return is_connected && there; }));
    }
};

// Objects that are moved keep their callbacks, and messages their boundaries.
static void messages() {
    World world = World::open();
    world.connect();
    CHECK(*world.here.peer_key() == world.server.public_key());
    CHECK(*world.here.address() == world.server.address());
    FlowOptions options;
    options.tag = 5;
    options.kind = NOCTULE_KIND_UNORDERED;
    Flow out = *world.here.open_messages(options);
    Flow in;
    std::vector<std::string> came;
    bool is_over = false, is_finished = false;
    world.there.on_flow([&] {
        in = *world.there.accept();
        CHECK(in.tag() == 5 && !in.is_stream());
        in.on_readable([&] {
            for (;;) {
                auto message = in.recv();
                if (message) {
                    came.push_back(message->data);
                    continue;
                }
                is_over = message.error() == NOCTULE_ERROR_END;
                CHECK(is_over || message.error().would_block());
                return;
            }
        });
    });
    out.on_finished([&](const Error &error) {
        CHECK(!error);
        is_finished = true;
    });
    Flow moved = std::move(out);
    CHECK(!out && moved);
    CHECK(out.send("x").error() == NOCTULE_ERROR_BAD_HANDLE);
    MessageOptions urgent;
    urgent.priority = 9;
    urgent.lifetime = std::chrono::seconds(60);
    CHECK(*moved.send("one", urgent) == 0);
    CHECK(*moved.send(std::string(5000, 'x')) == 1);
    CHECK(*moved.send("") == 2);
    CHECK(!moved.finish());
    CHECK(!world.context.run([&] { return is_over && is_finished; }));
    CHECK(came.size() == 3);
    std::size_t bytes = 0;
    for (auto &message : came) bytes += message.size();
    CHECK(bytes == 5003);
    // Datagrams, and the outcome of the close.
    CHECK(!world.here.send_datagram("datagram"));
    std::string datagram;
    world.there.on_datagram([&] { datagram = *world.there.recv_datagram(); });
    CHECK(!world.context.run([&] { return !datagram.empty(); }));
    CHECK(datagram == "datagram");
    // A rate to produce, once the control is one for media.
    CHECK(world.here.target_rate().error().would_block());
    double rate = 0;
    world.here.on_target_rate([&] { rate = *world.here.target_rate(); });
    CHECK(!world.here.set_congestion("gcc"));
    CHECK(!world.context.run([&] { return rate > 20e3; }));
    CHECK(world.here.outcome().error().would_block());
    bool is_closed = false;
    world.there.on_closed([&] { is_closed = true; });
    CHECK(!world.here.close(4, "enough"));
    CHECK(!world.context.run([&] { return is_closed; }));
    CHECK(world.there.outcome()->application_code == 4 && world.there.outcome()->is_remote);
    CHECK(world.here.stats()->messages_sent == 4);
    moved = Flow();
    world.context.finish(std::chrono::seconds(5));
    CHECK(world.there.close().code == NOCTULE_ERROR_BAD_HANDLE);
}

// A callback destroys its own session, with the function that is running.
static void destroy() {
    World world = World::open();
    world.connect();
    auto flow = std::make_shared<Flow>(*world.here.open_stream());
    CHECK(*flow->write("hello") == 5);
    int calls = 0;
    auto own = std::make_shared<std::optional<Flow>>();
    world.there.on_flow([&] {
        *own = *world.there.accept();
        std::string text = "lives as long as the function runs, and is long enough to be on the heap";
        (*own)->on_readable([&calls, own, text] {
            own->reset();
            CHECK(text.size() > 50 && text[0] == 'l');
            calls++;
        });
    });
    CHECK(!world.context.run([&] { return calls == 1; }));
    // The server's end stopped the stream; its session is destroyed by its own callback.
    auto session = std::make_shared<std::optional<Session>>(std::move(world.there));
    (*session)->on_closed([session, &calls] {
        session->reset();
        calls++;
    });
    CHECK(!world.here.abort(1));
    CHECK(!world.context.run([&] { return calls == 2; }));
}

// Callbacks on the library's thread, objects destroyed on this one.
static void threads() {
    World world = World::open();
    std::atomic<int> connected{0}, accepted{0};
    world.server.on_session([&] {
        while (auto session = world.server.accept()) accepted++;
    });
    CHECK(!world.context.start());
    CHECK(world.context.poll().error() == NOCTULE_ERROR_MISUSE);
    for (int i = 0; i < 100; i++) {
        auto session = world.client.connect(world.server.address(), world.identity.public_key(), [&](const Error &) { connected++; });
        CHECK(session);
        if (i % 3) std::this_thread::sleep_for(std::chrono::microseconds(i * 30));
    }
    auto wrong = std::make_unique<std::atomic<int>>(0);
    auto session = world.client.connect("no port", "any", [&](const Error &error) { *wrong = error.words.find("host:port") != std::string::npos ? 1 : 2; });
    CHECK(session);
    while (*wrong == 0) std::this_thread::yield();
    CHECK(*wrong == 1);
    world.context.finish(std::chrono::seconds(2));
}

static void errors() {
    CHECK(Identity::from_text("nonsense").error() == NOCTULE_ERROR_INVALID_ARGUMENT);
    CHECK(Identity::load("/no/such/file").error().words.find("/no/such/file") != std::string::npos);
    World world = World::open();
    EndpointOptions options;
    options.authorised = std::vector<std::string>{};
    auto closed = world.context.listen(world.identity, "127.0.0.1:0", options);
    CHECK(closed);
    Error why;
    auto session = world.client.connect(closed->address(), closed->public_key(), [&](const Error &error) { why = error; });
    CHECK(!world.context.run([&] { return bool(why); }));
    CHECK(why == NOCTULE_ERROR_NOT_AUTHORISED && !why.words.empty());
    // Another key than the pinned one, and a host that is not there.
    EndpointOptions brief;
    brief.connect_timeout = std::chrono::seconds(1);
    auto hasty = world.context.client(brief);
    auto other = Identity::generate();
    CHECK(hasty && other);
    why = {};
    auto wrong = hasty->connect(world.server.address(), other->public_key(), [&](const Error &error) { why = error; });
    CHECK(!world.context.run([&] { return bool(why); }));
    CHECK(why == NOCTULE_ERROR_WRONG_KEY && why.words.find(world.server.public_key()) != std::string::npos);
    why = {};
    auto nowhere = hasty->connect("no-such-host.invalid:4242", world.server.public_key(), [&](const Error &error) { why = error; });
    CHECK(!world.context.run([&] { return bool(why); }));
    CHECK(why == NOCTULE_ERROR_RESOLVE && why.words.find("no-such-host.invalid") != std::string::npos);
    CHECK(hasty->connect(world.server.address(), "no key", nullptr).error() == NOCTULE_ERROR_INVALID_ARGUMENT);
    options.authorised->push_back("not a key");
    CHECK(world.context.listen(world.identity, "127.0.0.1:0", options).error() == NOCTULE_ERROR_INVALID_ARGUMENT);
    CHECK(Flow().finish() == NOCTULE_ERROR_BAD_HANDLE);
    CHECK(Session().open_stream().error() == NOCTULE_ERROR_BAD_HANDLE);
}

static std::ptrdiff_t entries(const char *path) { return std::distance(std::filesystem::directory_iterator(path), {}); }

// Sessions with a stream each, of which half outlive their stream.
static void open_and_drop(World &world, int count) {
    std::vector<Session> ours, theirs;
    std::vector<Flow> flows;
    int connected = 0;
    world.server.on_session([&] {
        for (;;) {
            auto session = world.server.accept();
            if (!session) break;
            theirs.push_back(*std::move(session));
        }
    });
    for (int i = 0; i < count; i++) {
        auto made = world.client.connect(world.server.address(), world.identity.public_key(), [&](const Error &error) {
            CHECK(!error);
            connected++;
        });
        CHECK(made);
        ours.push_back(*std::move(made));
    }
    CHECK(!world.context.run([&] { return connected == count; }));
    for (auto &session : ours) {
        auto flow = session.open_stream();
        CHECK(flow && flow->write("hello"));
        flows.push_back(*std::move(flow));
    }
    CHECK(!world.context.run([&] { return theirs.size() == static_cast<std::size_t>(count); }));
    for (std::size_t i = 0; i < flows.size(); i += 2) flows[i] = Flow();
    ours.clear();
    flows.clear();
    theirs.clear();
    int idle = 0;
    world.client.on_idle([&] { idle++; });
    world.server.on_idle([&] { idle++; });
    CHECK(!world.context.run([&] { return idle == 2; }));
    world.server.on_session({});
}

// A thousand connections that are opened and dropped leave no descriptor, no thread and no memory.
static void thousand() {
    mallopt(M_ARENA_MAX, 1); // mallinfo2 counts the first one only.
    {
        // What the process makes once, for all contexts.
        World first = World::open();
        open_and_drop(first, 1);
        first.context.finish(std::chrono::seconds(2));
    }
    const auto files = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    const std::size_t empty = mallinfo2().uordblks;
    {
        World world = World::open();
        // No more at once than a server keeps of one key.
        for (int i = 0; i < 40; i++) open_and_drop(world, 25);
        CHECK(world.server.stats().memory_used == 0);
        world.context.finish(std::chrono::seconds(2));
    }
    const std::size_t after = mallinfo2().uordblks;
    std::fprintf(stderr, "allocated before %zu bytes, after %zu\n", empty, after);
    // The table of handles keeps its places for others.
    CHECK(after < empty + 200000);
    CHECK(entries("/proc/self/fd") == files && entries("/proc/self/task") == threads);
}

int main(int count, char **arguments) {
    alarm(120); // Ends what hangs.
    const std::string_view test = count == 2 ? arguments[1] : "";
    if (test == "messages") return messages(), 0;
    if (test == "destroy") return destroy(), 0;
    if (test == "threads") return threads(), 0;
    if (test == "errors") return errors(), 0;
    if (test == "thousand") return thousand(), 0;
    std::fprintf(stderr, "usage: objects TEST\n");
    return 2;
}
