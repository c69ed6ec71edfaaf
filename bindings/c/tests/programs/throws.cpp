// Callbacks that throw, against what the headers say: `throws object|function`. The process ends, and no exception gets into the library.
#include "noctule.hpp"

#include <cstdio>
#include <cstring>
#include <unistd.h>

static void thrower(const noctule_event *, void *) { throw 1; }

int main(int count, char **arguments) {
    alarm(60); // Ends what hangs.
    const bool is_object = count == 2 && !std::strcmp(arguments[1], "object");
    auto context = noctule::Context::make(1);
    if (!context) return 2;
    if (!is_object && noctule_context_set_callback(context->handle(), thrower, nullptr)) return 2;
    auto client = context->client();
    if (!client) return 2;
    auto identity = noctule::Identity::generate();
    auto session = client->connect("127.0.0.1:1", identity->public_key(), [](const noctule::Error &) { throw 1; });
    if (!session) return 2;
    if (is_object) {
        try {
            context->run([] { return false; });
        } catch (int) {
            std::puts("the exception went through the header");
        }
    } else {
        for (;;) pause();
    }
    return 0;
}
