// Counts what comes to 127.0.0.1, port 12345: server CERT KEY [MODE] [PORT]. Ends with the connection, or by SIGINT. Written for the BATS API; it knows nothing of noctule.
#include "include/cpp/bats_protocol.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

int main(int argc, char **argv) {
    if (argc < 3 || !std::ifstream(argv[1]) || !std::ifstream(argv[2])) {
        std::cerr << "usage: server CERT KEY [MODE] [PORT], with files that exist" << std::endl;
        return 1;
    }
    IOContext context;
    std::atomic<bool> is_running{true};
    context.SetSignalCallback([&](int) { is_running = false; });

    BatsConfiguration configuration;
    configuration.SetMode(static_cast<TransMode>(argc > 3 ? std::atoi(argv[3]) : 1));
    configuration.SetLocalAddress("127.0.0.1");
    configuration.SetLocalPort(argc > 4 ? std::atoi(argv[4]) : 12345);
    configuration.SetCertFile(argv[1]);
    configuration.SetKeyFile(argv[2]);
    BatsProtocol protocol(context, configuration);

    int mark = 7;
    long messages = 0, bytes = 0;
    const ConnectionCallback callback = [&](const IBatsConnPtr &, const BatsConnEvent &event, const octet *data, int length, void *) {
        if (event == BatsConnEvent::BATS_CONNECTION_DATA_RECEIVED) {
            assert(data[0] == 'b' && data[length - 1] == 'b');
            messages++;
            bytes += length;
        }
        if (event == BatsConnEvent::BATS_CONNECTION_CLOSED || event == BatsConnEvent::BATS_CONNECTION_SHUTDOWN_BY_PEER) is_running = false;
        return true;
    };
    protocol.StartListen(
        [&](const IBatsConnPtr &connection, const BatsListenEvent &event, void *user) {
            assert(user == &mark);
            if (event == BatsListenEvent::BATS_LISTEN_SUCCESS) std::cout << "listening" << std::endl;
            if (event == BatsListenEvent::BATS_LISTEN_FAILED) is_running = false;
            if (event == BatsListenEvent::BATS_LISTEN_NEW_CONNECTION) {
                const uint32_t length = connection->GetIdealBufferLength();
                assert(length > 0 && length <= 150000);
                connection->SetConnectionCallback(callback, nullptr);
            }
        },
        &mark);
    while (is_running) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    protocol.StopListen();
    std::cout << messages << " messages, " << bytes << " bytes" << std::endl;
    return 0;
}
