// File mode: files cut into messages, and put together again.
#ifndef NOCTULE_BATS_IPERF_FILES_H
#define NOCTULE_BATS_IPERF_FILES_H

#include "link.h"
#include "options.h"
#include "report.h"
#include "sha256.h"
#include "wire.h"

#include <array>
#include <optional>

// What the first message of a file says of it.
struct FileDescription {
    uint64_t stream = 0;
    uint8_t codec = 0;
    uint64_t length = 0;
    // 64 hexadecimal digits, or nothing.
    std::string checksum;
    std::string name;

    static constexpr size_t BYTES = 360;
    void write(octet *at) const;
    // Nothing if it is none, or its name is not one of a file in one folder.
    static std::optional<FileDescription> parse(const octet *at);
};

// Gives the exit status. `links` outlive the protocol.
int send_files(const Options &options, Report &report, BatsProtocol &protocol, Link &signals, std::vector<std::unique_ptr<Link>> &links, int &answers, int &refusal);

// Writes into the current folder. One thread at a time.
class Receiver {
public:
    // Files that are being transferred on one connection, by their numbers.
    struct Part {
        FileDescription about;
        std::unique_ptr<std::FILE, int (*)(std::FILE *)> file{nullptr, std::fclose};
        std::string path;
        uint64_t received = 0;
        noctule_bats::Sha256 hash;
        bool has_failed = false, has_mark = false;

        ~Part();
    };
    using Parts = std::array<std::unique_ptr<Part>, 16>;

    Receiver(const Signal &request, Report &report) : report_(report), files_(request.p[0]) {}
    static bool has_room(const Signal &request);
    std::shared_ptr<Parts> begin() { return std::make_shared<Parts>(); }
    void take(Parts &parts, const octet *data, int length);
    bool is_done() const { return done_ >= files_; }
    bool has_failed() const { return has_failed_; }

private:
    std::string begin(Part &part, const octet *description);
    std::string finish(Part &part);
    void fail(const std::string &why);

    Report &report_;
    uint32_t files_, done_ = 0;
    bool has_failed_ = false;
};

#endif
