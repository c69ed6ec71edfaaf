// Sends its standard input to an echo server and writes what comes back: echo_client HOST:PORT PUBLIC-KEY
#include <noctule.hpp>

#include <cstdio>
#include <string>

static int fail(const char *what, const noctule::Error &error) {
    std::fprintf(stderr, "echo_client: %s: %s\n", what, error.words.c_str());
    return 1;
}

int main(int count, char **arguments) {
    if (count != 3) {
        std::fprintf(stderr, "usage: echo_client HOST:PORT PUBLIC-KEY\n");
        return 2;
    }
    auto context = noctule::Context::make();
    if (!context) return fail("no context", context.error());
    auto client = context->client();
    if (!client) return fail("no endpoint", client.error());

    int status = -1;
    noctule::Session session;
    noctule::Flow stream;
    std::string waiting;
    auto send = [&] {
        for (;;) {
            if (waiting.empty()) {
                waiting.resize(65536);
                waiting.resize(std::fread(&waiting[0], 1, waiting.size(), stdin));
                if (waiting.empty()) {
                    stream.finish();
                    return;
                }
            }
            auto written = stream.write(waiting);
            if (!written) {
                if (!written.error().would_block()) status = fail("cannot write", written.error());
                return; // on_writable follows
            }
            waiting.erase(0, *written);
        }
    };
    auto receive = [&] {
        char block[65536];
        for (;;) {
            auto read = stream.read(block, sizeof block);
            if (!read) {
                if (!read.error().would_block()) status = fail("cannot read", read.error());
                return; // on_readable follows
            }
            if (*read == 0) {
                session.close(0, "done");
                return;
            }
            std::fwrite(block, 1, *read, stdout);
        }
    };
    auto connecting = client->connect(arguments[1], arguments[2], [&](const noctule::Error &error) {
        if (error) {
            status = fail("cannot connect", error);
            return;
        }
        auto opened = session.open_stream();
        if (!opened) {
            status = fail("no stream", opened.error());
            return;
        }
        stream = *std::move(opened);
        stream.on_writable(send);
        stream.on_readable(receive);
        session.on_closed([&] { status = session.outcome()->all_delivered ? 0 : 1; });
        send();
    });
    if (!connecting) return fail("cannot connect", connecting.error());
    session = *std::move(connecting);
    if (auto error = context->run([&] { return status >= 0; })) return fail("no events", error);
    context->finish(std::chrono::seconds(1));
    return status;
}
