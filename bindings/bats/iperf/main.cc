// A program with the options, messages and lines of bats_iperf, over the BATS API of noctule.
#include "roles.h"

#include <iostream>

int main(int argc, char **argv) {
    Options options;
    const std::string why = parse(argc, argv, options);
    if (options.wants_help) {
        std::cout << USAGE;
        return 0;
    }
    if (!why.empty()) {
        std::cerr << "bats_iperf: " << why << "\n" << USAGE;
        return 1;
    }
    Report report;
    if (const std::string failure = report.open(options); !failure.empty()) {
        report.error(failure);
        return 1;
    }
    IOContext context;
    if (!options.library_log.empty()) context.SetBATSLogFilePath(options.library_log);
    if (options.is_debug) context.SetBATSLogLevel(BATSLogLevel::LOG_DEBUG);
    std::atomic<bool> is_running{true};
    context.SetSignalCallback([&](int) { is_running = false; });
    return options.is_server ? run_server(options, report, context, is_running) : run_client(options, report, context, is_running);
}
