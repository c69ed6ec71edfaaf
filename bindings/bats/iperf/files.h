// File mode: files cut into messages, and put together again.
#ifndef NOCTULE_BATS_IPERF_FILES_H
#define NOCTULE_BATS_IPERF_FILES_H

#include "link.h"
#include "options.h"
#include "report.h"
#include "sha256.h"
#include "wire.h"

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

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

// What is to be sent. It is read through once before anything is open that ends when it is idle: a large file takes longer than that.
struct FileList {
    std::vector<std::string> files, checksums;
    uint64_t total = 0;

    // Empty: none of the files is there; it was said.
    static FileList of(const Options &options, Report &report);
};

// Gives the exit status. `links` outlive the protocol.
int send_files(FileList list, const Options &options, Report &report, BatsProtocol &protocol, Link &signals, std::vector<std::unique_ptr<Link>> &links, int &answers, int &refusal);

// Names that this server has placed, over all tests: it may put another file in their place, and in no others'.
using Placed = std::set<std::string>;

// Names of files of which a part has come.
class UnderWay {
public:
    bool begin(const std::string &name) {
        std::lock_guard<std::mutex> lock(mutex_);
        return names_.insert(name).second;
    }
    void end(const std::string &name) {
        std::lock_guard<std::mutex> lock(mutex_);
        names_.erase(name);
    }

private:
    std::mutex mutex_;
    std::set<std::string> names_;
};

// Writes into the current folder. Any host that reaches the port may send: hidden names, and names that are there already, are refused. One thread at a time.
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
        // Where its name is among those that are under way; a connection may end after its test.
        std::shared_ptr<UnderWay> names;

        ~Part();
    };
    using Parts = std::array<std::unique_ptr<Part>, 16>;

    Receiver(const Signal &request, Report &report, Placed &placed)
        : report_(report), placed_(placed), files_(request.p[0]), room_(static_cast<uint64_t>(request.p[1]) << 32 | request.p[2]) {}
    static bool has_room(const Signal &request);
    std::shared_ptr<Parts> begin() { return std::make_shared<Parts>(); }
    void take(Parts &parts, const octet *data, int length);
    bool is_done() const { return done_ >= files_; }
    bool has_failed() const { return has_failed_; }

private:
    std::string begin(Part &part, const octet *description);
    std::string finish(Part &part);
    void fail(const std::string &why);
    // Nothing, or why the file at `path` does not get this name.
    std::string place(const std::string &path, const std::string &name);

    Report &report_;
    Placed &placed_;
    std::shared_ptr<UnderWay> under_way_ = std::make_shared<UnderWay>();
    uint32_t files_, done_ = 0;
    // Bytes that were announced and have not come yet.
    uint64_t room_;
    bool has_failed_ = false;
};

#endif
