// Sends back what it reads: echo_server ADDRESS:PORT KEYFILE
#include <noctule.hpp>

#include <cstdio>
#include <list>

// A stream, and what was read from it and not written back yet.
struct Echo {
    noctule::Flow flow;
    char block[65536];
    std::size_t held = 0, at = 0;

    // Goes on until nothing can be done now; false at the end.
    bool move() {
        for (;;) {
            if (held == 0) {
                auto read = flow.read(block, sizeof block);
                if (!read) return read.error().would_block();
                if (*read == 0) return false;
                held = *read, at = 0;
            }
            auto written = flow.write({block + at, held});
            if (!written) return written.error().would_block();
            at += *written, held -= *written;
        }
    }
};

struct Peer {
    noctule::Session session;
    std::list<Echo> streams;
};

static int fail(const char *what, const noctule::Error &error) {
    std::fprintf(stderr, "echo_server: %s: %s\n", what, error.words.c_str());
    return 1;
}

int main(int count, char **arguments) {
    if (count != 3) {
        std::fprintf(stderr, "usage: echo_server ADDRESS:PORT KEYFILE\n");
        return 2;
    }
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    auto context = noctule::Context::make();
    if (!context) return fail("no context", context.error());
    auto identity = noctule::Identity::load(arguments[2]);
    if (!identity) return fail("no key", identity.error());
    auto server = context->listen(*identity, arguments[1]);
    if (!server) return fail("cannot listen", server.error());
    std::printf("%s %s\n", server->address().c_str(), server->public_key().c_str());

    std::list<Peer> peers;
    server->on_session([&] {
        while (auto session = server->accept()) {
            auto peer = peers.insert(peers.end(), Peer{*std::move(session), {}});
            std::printf("session with %s\n", peer->session.peer_key()->c_str());
            peer->session.on_closed([&peers, peer] { peers.erase(peer); });
            peer->session.on_flow([peer] {
                while (auto flow = peer->session.accept()) {
                    if (!flow->is_stream()) continue;
                    auto echo = peer->streams.emplace(peer->streams.end());
                    echo->flow = *std::move(flow);
                    auto move = [peer, echo] {
                        if (!echo->move()) peer->streams.erase(echo);
                    };
                    echo->flow.on_readable(move);
                    echo->flow.on_writable(move);
                }
            });
        }
    });
    // Without end, until a signal ends the program.
    return fail("no events", context->run([] { return false; }));
}
