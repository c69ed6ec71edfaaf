// Sends blocks of the ideal length to 127.0.0.1, port 12345: client [COUNT] [MODE] [PORT]. A count of 0 is for ever. Written for the BATS API; it knows nothing of noctule.
#include "include/cpp/bats_config.h"
#include "include/cpp/bats_connection.h"
#include "include/cpp/bats_iocontext.h"
#include "include/cpp/bats_protocol.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

int main(int argc, char **argv) {
    const long count = argc > 1 ? std::atol(argv[1]) : 1;
    const int mode = argc > 2 ? std::atoi(argv[2]) : 1;

    const int port = argc > 3 ? std::atoi(argv[3]) : 12345;

    IOContext context;
    std::atomic<bool> is_running{true}, is_writable{false}, is_failed{false};
    context.SetSignalCallback([&](int) { is_running = false; });

    BatsConfiguration configuration;
    configuration.SetMode(static_cast<TransMode>(mode));
    configuration.SetTimeout(2000); // ms
    configuration.SetRemoteAddr("127.0.0.1");
    configuration.SetRemotePort(port);
    configuration.SetFrameType(FrameType::BATS_HEADER_V1);

    std::mutex mutex;
    IBatsConnPtr connection;
    octetVec block;
    const ConnectionCallback callback = [&](const IBatsConnPtr &from, const BatsConnEvent &event, const octet *, int, void *) {
        switch (event) {
        case BatsConnEvent::BATS_CONNECTION_ESTABLISHED: {
            const uint32_t length = from->GetIdealBufferLength();
            assert(length > 0 && length <= 150000);
            std::lock_guard<std::mutex> lock(mutex);
            block.assign(length, 'b');
            connection = from;
            std::cout << "established" << std::endl;
            break;
        }
        case BatsConnEvent::BATS_CONNECTION_WRITABLE: is_writable = true; break;
        case BatsConnEvent::BATS_CONNECTION_BUFFER_FULL: is_writable = false; break;
        case BatsConnEvent::BATS_CONNECTION_FAILED:
        case BatsConnEvent::BATS_CONNECTION_TIMEOUT: is_failed = true; break;
        case BatsConnEvent::BATS_CONNECTION_CLOSED:
        case BatsConnEvent::BATS_CONNECTION_SHUTDOWN_BY_PEER: is_running = false; break;
        default: break;
        }
        return true;
    };

    BatsProtocol protocol(context, configuration);
    protocol.StartConnect(callback, nullptr);
    for (long sent = 0; is_running && (count == 0 || sent < count);) {
        if (is_failed.exchange(false)) {
            std::this_thread::sleep_for(std::chrono::seconds(3));
            protocol.StartConnect(callback, nullptr);
        }
        if (!is_writable) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            continue;
        }
        IBatsConnPtr to;
        {
            std::lock_guard<std::mutex> lock(mutex);
            to = connection;
        }
        if (to->SendData(block.data(), static_cast<int>(block.size()))) sent++;
    }
    std::this_thread::sleep_for(std::chrono::seconds(1));
    return 0;
}
