#include "identity.h"

#include "log.h"
#include "sha256.h"

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <sys/stat.h>

namespace noctule_bats {

namespace {
constexpr size_t LARGEST_FILE = 1 << 20;
// Hashed in front of a PEM key's bytes. A change of the rule needs another label, since it changes every key.
const char LABEL[] = "noctule bats key file 1";
// Pins the server's key for programs that cannot be changed.
const char PIN_VARIABLE[] = "NOCTULE_BATS_SERVER_KEY";

noctule::Error invalid(const std::string &words) { return {NOCTULE_ERROR_INVALID_ARGUMENT, words}; }

noctule::Result<std::string> read_file(const std::string &path) {
    struct stat about {};
    if (stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) return invalid(path + ": not a regular file");
    std::ifstream file(path, std::ios::binary);
    std::string text(LARGEST_FILE + 1, '\0');
    if (!file) return noctule::Error{NOCTULE_ERROR_SYSTEM, path + ": " + std::strerror(errno)};
    file.read(&text[0], static_cast<std::streamsize>(text.size()));
    if (file.bad()) return noctule::Error{NOCTULE_ERROR_SYSTEM, path + ": cannot be read"};
    text.resize(static_cast<size_t>(file.gcount()));
    if (text.size() > LARGEST_FILE) return invalid(path + ": larger than 1 MiB, so neither a key nor a certificate");
    return text;
}

std::string from_base64(const std::string &text) {
    std::string out;
    uint32_t bits = 0;
    int count = 0;
    for (const char c : text) {
        int value;
        if (c >= 'A' && c <= 'Z') value = c - 'A';
        else if (c >= 'a' && c <= 'z') value = c - 'a' + 26;
        else if (c >= '0' && c <= '9') value = c - '0' + 52;
        else if (c == '+') value = 62;
        else if (c == '/') value = 63;
        else if (c == '=' || c == '\n' || c == '\r' || c == ' ' || c == '\t') continue;
        else return {};
        bits = bits << 6 | static_cast<uint32_t>(value);
        count += 6;
        if (count >= 8) {
            count -= 8;
            out += static_cast<char>(bits >> count & 0xff);
        }
    }
    return out;
}

// The bytes of the private key in a PEM file, or an error that says why there are none.
noctule::Result<std::string> private_key(const std::string &path, const std::string &text) {
    const std::string end_of_first = " PRIVATE KEY-----", plain = "-----BEGIN PRIVATE KEY-----";
    size_t at = text.find(plain), begin = at + plain.size();
    if (at == std::string::npos) {
        const size_t label = text.find(end_of_first);
        at = label == std::string::npos ? label : text.rfind("-----BEGIN ", label);
        begin = label + end_of_first.size();
    }
    const size_t end = at == std::string::npos ? at : text.find("-----END ", begin);
    if (end == std::string::npos) return invalid(path + ": neither a secret key of noctule keygen nor a private key in PEM");
    const std::string head = text.substr(at, begin - at), body = text.substr(begin, end - begin);
    if (head.find("ENCRYPTED") != std::string::npos || body.find("ENCRYPTED") != std::string::npos)
        return invalid(path + ": the private key has a passphrase: make one without (openssl req -nodes)");
    std::string key = from_base64(body);
    if (key.size() < 32) return invalid(path + ": the private key is damaged");
    return key;
}
} // namespace

noctule::Result<noctule::Identity> identity_of(const Settings &settings) {
    const std::string &path = settings.key_file;
    if (path.empty()) return noctule::Identity::generate();
    auto text = read_file(path);
    if (!text) return text.error();
    // A key as `noctule keygen` writes it. The library itself checks the permissions of such a file.
    if (text->find("-----BEGIN") == std::string::npos) return noctule::Identity::load(path);
    auto key = private_key(path, *text);
    if (!key) return key.error();
    struct stat about {};
    if (stat(path.c_str(), &about) == 0 && (about.st_mode & 077) != 0)
        log(Level::warn, path + ": others than its owner may read it, and another host that has it passes for this end: chmod 600 " + path);
    Sha256 hash;
    hash.update(LABEL, sizeof LABEL);
    hash.update(key->data(), key->size());
    const auto secret = hash.finish();
    return noctule::Identity::from_bytes({secret.data(), secret.size()});
}

noctule::Result<std::string> pinned_key(const std::string &cert_file) {
    auto text = read_file(cert_file);
    if (!text) return text.error();
    std::istringstream words(*text);
    for (std::string word; words >> word;)
        if (noctule_key_check(word.c_str()) == NOCTULE_ERROR_OK) return word;
    if (text->find("-----BEGIN CERTIFICATE-----") == std::string::npos) return invalid(cert_file + ": neither a public key nor a certificate in PEM");
    return std::string();
}

noctule::Result<std::string> server_key(const Settings &settings) {
    if (const char *pin = std::getenv(PIN_VARIABLE); pin && *pin) {
        if (noctule_key_check(pin) != NOCTULE_ERROR_OK) return invalid(std::string(PIN_VARIABLE) + ": " + noctule_last_error());
        return std::string(pin);
    }
    if (settings.cert_file.empty()) return std::string("any");
    auto pinned = pinned_key(settings.cert_file);
    if (!pinned) return pinned.error();
    return pinned->empty() ? std::string("any") : *pinned;
}

} // namespace noctule_bats
