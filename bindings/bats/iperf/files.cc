#include "files.h"

#include "roles.h"
#include "shown.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/statvfs.h>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;

namespace {
constexpr uint64_t FILE_MAGIC = 0xa1b2ffff626174;
constexpr size_t NAME = 256, EXTENSION = 16, CHECKSUM = 64;
constexpr octet FIRST = 1, LAST = 2, HAS_CHECKSUM = 4, COMPRESSED = 8;
constexpr int CELLS = 40, FILE_IDLE = 5000;
constexpr milliseconds TO_CONFIRM{3000}, TO_ANSWER{10000};

std::string text(const octet *at, size_t most) {
    const auto *begin = reinterpret_cast<const char *>(at);
    return std::string(begin, strnlen(begin, most));
}
bool is_checksum(const std::string &text) { return text.size() == CHECKSUM && text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos; }
// No path, and no hidden file, which programs read without being asked.
bool is_plain_name(const std::string &name) { return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos; }

// A progress bar on a terminal, nothing where the output is redirected.
class Progress {
public:
    Progress(const std::string &title, uint64_t total, bool is_shown) : total_(total), is_shown_(is_shown && isatty(STDOUT_FILENO)) { std::printf("%s\n", noctule_bats::shown(title).c_str()), std::fflush(stdout); }
    ~Progress() {
        if (is_shown_) std::printf("\n");
    }
    void at(uint64_t done) {
        const auto now = Clock::now();
        if (!is_shown_ || (done < total_ && now - told_ < milliseconds(100))) return;
        told_ = now;
        const double part = total_ ? static_cast<double>(done) / static_cast<double>(total_) : 1, seconds = std::chrono::duration<double>(now - begin_).count();
        const int cells = static_cast<int>(part * CELLS);
        std::printf("\r[%s%s] %3.0f%% %llu/%llu %.2f MB/s %.1f s", std::string(cells, '#').c_str(), std::string(CELLS - cells, ' ').c_str(), part * 100, static_cast<unsigned long long>(done),
                    static_cast<unsigned long long>(total_), seconds > 0 ? static_cast<double>(done) / 1e6 / seconds : 0, seconds);
        std::fflush(stdout);
    }

private:
    uint64_t total_;
    bool is_shown_;
    Clock::time_point begin_ = Clock::now(), told_{};
};

// A file that is new: what a link of this name leads to is not ours.
std::FILE *create(const std::string &path) {
    unlink(path.c_str());
    const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor < 0) return nullptr;
    std::FILE *file = fdopen(descriptor, "wb");
    if (!file) close(descriptor);
    return file;
}

// The file's SHA-256; empty: it cannot be read.
std::string checksum_of(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    noctule_bats::Sha256 hash;
    std::vector<char> block(1 << 16);
    while (file) {
        file.read(block.data(), static_cast<std::streamsize>(block.size()));
        hash.update(block.data(), static_cast<size_t>(file.gcount()));
    }
    return file.bad() || !file.eof() ? std::string() : noctule_bats::Sha256::hex(hash.finish());
}

struct Sender {
    const Options &options;
    Report &report;
    FileList list;
    std::mutex mutex;
    size_t next = 0;
    bool has_failed = false;
    // Files whose last bytes were not acknowledged before the connection ended: a server that has them all ends its connections at once, and says so.
    std::vector<std::string> unconfirmed;

    void fail(const std::string &why) {
        std::lock_guard<std::mutex> lock(mutex);
        report.error(why);
        has_failed = true;
    }
    void run(Link &link, uint64_t stream);
    bool send(Link &link, uint64_t stream, size_t number);
};

void Sender::run(Link &link, uint64_t stream) {
    for (;;) {
        size_t number;
        {
            std::lock_guard<std::mutex> lock(mutex);
            if (next == list.files.size()) return;
            number = next++;
        }
        if (!send(link, stream, number)) return;
    }
}

bool Sender::send(Link &link, uint64_t stream, size_t number) {
    const std::string &path = list.files[number];
    FileDescription about;
    about.stream = stream;
    about.name = fs::path(path).filename();
    about.checksum = list.checksums[number];
    std::error_code failure;
    about.length = fs::file_size(path, failure);
    // Only those that do not know that checksums are always looked at need the mark.
    octet mark = 0;
    if (std::ifstream beside(path + ".sha256sum"); beside) {
        std::string said(CHECKSUM, '\0');
        beside.read(&said[0], CHECKSUM);
        std::transform(said.begin(), said.end(), said.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        if (said != about.checksum) return fail(path + " is not what " + path + ".sha256sum says"), false;
        mark = HAS_CHECKSUM;
    }
    std::ifstream file(path, std::ios::binary);
    if (!file || failure || about.checksum.empty()) return fail(path + " cannot be read"), false;
    if (about.name.size() >= NAME) return fail(path + ": the name has more than 255 bytes"), false;
    Progress progress("Transfering file : " + about.name, about.length, !options.is_debug);
    const size_t ideal = link.connection()->GetIdealBufferLength();
    uint64_t sent = 0;
    for (bool is_first = true; is_first || sent < about.length; is_first = false) {
        const size_t head = is_first ? 1 + FileDescription::BYTES : 1;
        const size_t length = static_cast<size_t>(std::min<uint64_t>(about.length - sent, ideal - (is_first ? head : FileDescription::BYTES)));
        octetVec message(head + length);
        if (is_first) about.write(&message[1]);
        file.read(reinterpret_cast<char *>(message.data() + head), static_cast<std::streamsize>(length));
        if (static_cast<size_t>(file.gcount()) != length) return fail(path + " has become shorter"), false;
        sent += length;
        message[0] = static_cast<octet>((is_first ? FIRST | mark : 0) | (sent == about.length ? LAST : 0) | number << 4);
        if (!link.send(message)) return fail(path + ": the connection broke off"), false;
        progress.at(sent);
    }
    // Only one that comes after the last message counts.
    if (link.wait_acked()) return true;
    std::lock_guard<std::mutex> lock(mutex);
    unconfirmed.push_back(path);
    return false;
}
} // namespace

void FileDescription::write(octet *at) const {
    std::memset(at, 0, BYTES);
    put_integer(at, FILE_MAGIC, 8);
    put_integer(at + 8, stream, 8);
    put_integer(at + 16, length << 8 | (codec & 7), 8);
    std::memcpy(at + 24, checksum.data(), std::min(checksum.size(), CHECKSUM));
    // The part before the last dot and the one after it; an extension that is too long for its place stays with the name.
    const size_t dot = name.rfind('.');
    const bool is_parted = dot != std::string::npos && dot > 0 && dot + 1 < name.size() && name.size() - dot - 1 < EXTENSION;
    const std::string front = is_parted ? name.substr(0, dot) : name, back = is_parted ? name.substr(dot + 1) : std::string();
    std::memcpy(at + 24 + CHECKSUM, front.data(), std::min(front.size(), NAME));
    std::memcpy(at + 24 + CHECKSUM + NAME, back.data(), back.size());
}

std::optional<FileDescription> FileDescription::parse(const octet *at) {
    if (get_integer(at, 7) != FILE_MAGIC) return std::nullopt;
    FileDescription about;
    about.stream = get_integer(at + 8, 8);
    about.codec = at[16] & 7;
    about.length = get_integer(at + 17, 7);
    about.checksum = text(at + 24, CHECKSUM);
    if (!is_checksum(about.checksum)) about.checksum.clear();
    about.name = text(at + 24 + CHECKSUM, NAME);
    const std::string extension = text(at + 24 + CHECKSUM + NAME, EXTENSION);
    if (!extension.empty()) about.name += "." + extension;
    if (!is_plain_name(about.name)) return std::nullopt;
    return about;
}

FileList FileList::of(const Options &options, Report &report) {
    FileList list;
    for (const std::string &path : options.files) {
        std::error_code failure;
        if (!fs::is_regular_file(path, failure)) {
            report.error("warning: " + path + " is no file, and skipped");
            continue;
        }
        list.files.push_back(path);
        list.checksums.push_back(checksum_of(path));
        list.total += fs::file_size(path, failure);
    }
    if (list.files.empty()) report.error("-f: none of the files is there");
    return list;
}

int send_files(FileList list, const Options &options, Report &report, BatsProtocol &protocol, Link &signals, std::vector<std::unique_ptr<Link>> &links, int &answers, int &refusal) {
    const uint64_t total = list.total;
    Sender sender{options, report, std::move(list), {}, 0, false, {}};
    Signal request;
    request.test = static_cast<uint32_t>(monotonic_ms());
    request.action = FILE_REQUEST;
    request.streams = static_cast<uint8_t>(options.streams);
    request.p[0] = static_cast<uint32_t>(sender.list.files.size());
    request.p[1] = static_cast<uint32_t>(total >> 32);
    request.p[2] = static_cast<uint32_t>(total);
    if (!signals.send(request.bytes()) || !signals.wait(TO_CONNECT, [&] { return answers > 0; })) return report.error("the server does not answer"), 1;
    if (refusal != 0) return report.error("the server has no room for " + std::to_string(total) + " bytes, or another test"), 1;

    // The same protocol as that of the signals: what is begun from now on has this configuration.
    BatsConfiguration configuration;
    configuration.SetMode(static_cast<TransMode>(options.mode));
    configuration.SetTimeout(FILE_IDLE);
    use_pair(configuration, false);
    if (!protocol.LoadConfig(configuration)) return 1;
    for (int i = 0; i < options.streams; i++) links.push_back(std::make_unique<Link>());
    std::vector<std::thread> threads;
    std::atomic<int> connected{0};
    for (const auto &link : links)
        threads.emplace_back([&, raw = link.get()] {
            if (!raw->connect(protocol, options.host, static_cast<uint16_t>(options.port), TRIES, TO_CONNECT)) return;
            connected++;
            sender.run(*raw, monotonic_ms());
        });
    for (auto &thread : threads) thread.join();
    if (connected < options.streams) sender.fail("Unable to establish all streams to " + options.host + ", port " + std::to_string(options.port));
    // A server of another make says nothing more.
    signals.wait(sender.has_failed ? TO_CONFIRM : TO_ANSWER, [&] { return answers > 1; });
    if (answers > 1 && refusal != 0) sender.fail("the server could not store all files as they were sent");
    if (answers <= 1)
        for (const std::string &path : sender.unconfirmed) sender.fail(path + ": the connection broke off before everything was there");
    return sender.has_failed ? 1 : 0;
}

Receiver::Part::~Part() {
    // What is not whole.
    if (!path.empty()) unlink(path.c_str());
    if (names) names->end(about.name);
}

bool Receiver::has_room(const Signal &request) {
    struct statvfs about {};
    const uint64_t total = static_cast<uint64_t>(request.p[1]) << 32 | request.p[2];
    return statvfs(".", &about) == 0 && static_cast<uint64_t>(about.f_bavail) * about.f_frsize > total;
}

void Receiver::fail(const std::string &why) {
    report_.error(why);
    has_failed_ = true;
}

void Receiver::take(Parts &parts, const octet *data, int length) {
    const octet bits = data[0];
    auto &part = parts[bits >> 4];
    const octet *content = data + 1;
    size_t left = static_cast<size_t>(length) - 1;
    std::string why;
    if (bits & FIRST) {
        part = std::make_unique<Part>();
        part->has_mark = (bits & HAS_CHECKSUM) != 0;
        if (left < FileDescription::BYTES) why = "a message is too short for the description of a file";
        else if (bits & COMPRESSED) why = "a file is compressed, which is not built";
        else why = begin(*part, content);
        content += FileDescription::BYTES;
        left = left < FileDescription::BYTES ? 0 : left - FileDescription::BYTES;
    }
    if (!part) return fail("a message belongs to no file");
    if (why.empty() && !part->has_failed) {
        if ((bits & COMPRESSED) != 0) why = part->about.name + ": compressed, which is not built";
        else if (left > part->about.length - part->received || left > room_) why = part->about.name + ": more came than was announced";
        else if (std::fwrite(content, 1, left, part->file.get()) != left) why = part->about.name + ": " + std::strerror(errno);
    }
    if (why.empty() && !part->has_failed) {
        part->hash.update(content, left);
        part->received += left;
        room_ -= left;
    }
    if (!why.empty()) {
        part->has_failed = true;
        fail(why);
    }
    if (!(bits & LAST)) return;
    if (!part->has_failed) {
        if (const std::string failure = finish(*part); !failure.empty()) {
            fail(failure);
            part->has_failed = true;
        } else if (part->has_mark) {
            const std::string name = part->about.name + ".sha256sum", fresh = "." + name + ".part";
            std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(create(fresh), std::fclose);
            if (file) std::fprintf(file.get(), "%s  %s\n", part->about.checksum.c_str(), part->about.name.c_str());
            const std::string why = !file ? std::strerror(errno) : std::fclose(file.release()) != 0 ? std::strerror(errno) : place(fresh, name);
            if (!why.empty()) report_.error(name + ": " + why);
        }
    }
    part.reset();
    done_++;
}

std::string Receiver::place(const std::string &path, const std::string &name) {
    const bool is_ours = placed_.count(name) != 0;
    int failed = is_ours ? std::rename(path.c_str(), name.c_str()) : renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, name.c_str(), RENAME_NOREPLACE);
    // A file system that does not know how: a link does not replace either.
    if (failed && !is_ours && (errno == EINVAL || errno == ENOSYS)) failed = link(path.c_str(), name.c_str()) || unlink(path.c_str());
    if (failed) return std::strerror(errno);
    placed_.insert(name);
    return {};
}

std::string Receiver::begin(Part &part, const octet *description) {
    auto about = FileDescription::parse(description);
    if (!about) return "a file's description is damaged, or its name has parts of a path";
    part.about = *about;
    if (about->codec != 0) return about->name + ": compressed, which is not built";
    // Two that write one file would place what neither has sent.
    if (!under_way_->begin(about->name)) return about->name + ": the same name is under way";
    part.names = under_way_;
    if (access(about->name.c_str(), F_OK) == 0 && placed_.count(about->name) == 0) return about->name + ": there is a file of this name, which did not come from here";
    // Under another name until it is whole.
    part.path = "." + about->name + ".part";
    part.file.reset(create(part.path));
    if (!part.file) {
        const std::string why = part.path + ": " + std::strerror(errno);
        part.path.clear();
        return why;
    }
    std::printf("Receiving file : %s\n", noctule_bats::shown(about->name).c_str());
    std::fflush(stdout);
    return {};
}

std::string Receiver::finish(Part &part) {
    const std::string &name = part.about.name;
    if (part.received != part.about.length) return name + ": " + std::to_string(part.received) + " bytes came instead of " + std::to_string(part.about.length);
    if (std::fclose(part.file.release()) != 0) return name + ": " + std::strerror(errno);
    std::string expected = part.about.checksum;
    std::transform(expected.begin(), expected.end(), expected.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (!expected.empty() && noctule_bats::Sha256::hex(part.hash.finish()) != expected) return name + ": the checksum is another one";
    if (const std::string why = place(part.path, name); !why.empty()) return name + ": " + why;
    part.path.clear();
    return {};
}
