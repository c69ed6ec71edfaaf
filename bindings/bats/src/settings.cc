// Configurations: setters, and the tables by which modes and congestion controls are mapped.
#include "settings.h"

#include "log.h"

using namespace noctule_bats;

namespace noctule_bats {

const char *congestion_name(int control) {
    switch (static_cast<CongestionControl>(control)) {
    case CongestionControl::None: return "none";
    // noctule has BBR as of draft-ietf-ccwg-bbr, version 3, and no older one.
    case CongestionControl::BBR:
    case CongestionControl::BBRv2:
    case CongestionControl::BBRv3: return "bbr";
    case CongestionControl::GCC: return "gcc";
    }
    return nullptr;
}

const char *mode_name(int mode) {
    switch (mode) {
    case BTP: return "BTP";
    case BRTP: return "BRTP";
    case BRCTP: return "BRCTP";
    case TRANSPARENT_MODE: return "TRANSPARENT";
    case TCP: return "TCP";
    case UDP: return "UDP";
    case QUIC: return "QUIC";
    default: return "unknown";
    }
}

std::string refusal(const Settings &settings) {
    const std::string number = std::to_string(settings.mode);
    if (settings.mode == UDP) return "mode 11 (UDP) is not built: use 3 (TRANSPARENT), datagrams without repair";
    if (settings.mode == QUIC) return "mode 12 (QUIC) is not built: use 1 (BRTP), or 10 (TCP) to compare with";
    if (std::string(mode_name(settings.mode)) == "unknown") return "mode " + number + " is none of 0 BTP, 1 BRTP, 2 BRCTP, 3 TRANSPARENT, 10 TCP";
    if (settings.control != -1 && congestion_name(settings.control) == nullptr)
        return "congestion control " + std::to_string(settings.control) + " is none of 0 None, 1 BBR, 3 BBRv2, 4 BBRv3, 5 GCC";
    for (int port : {settings.local_port, settings.remote_port})
        if (port < 0 || port > 65535) return "port " + std::to_string(port) + " is not between 0 and 65535";
    return {};
}

void tell_differences(const Settings &settings) {
    if (settings.mode == BRCTP) log(Level::info, "mode 2 (BRCTP) is carried by BRTP: coded files to many receivers are noctule's send and recv");
    if (settings.control == static_cast<int>(CongestionControl::BBR) || settings.control == static_cast<int>(CongestionControl::BBRv2))
        log(Level::info, "congestion control: BBR version 3 is used for all BBRs");
    if (settings.mode == TCP && settings.control != -1) log(Level::info, "mode 10 (TCP) takes the kernel's congestion control");
    if (settings.compression) log(Level::warn, "compression is not built: data goes as it is");
    if (settings.mode == TCP && !settings.key_file.empty()) log(Level::warn, "mode 10 is plain TCP: neither encrypted nor authenticated; the key is not used");
    if (settings.mode != TCP && !settings.encryption) log(Level::info, "encryption cannot be switched off");
    if (settings.timeout != 0 && milliseconds(settings.timeout) < SHORTEST_TIMEOUT)
        log(Level::info, "a time-out of " + std::to_string(settings.timeout) + " ms is taken for the default: it is less than a second");
}

std::string host_and_port(const std::string &host, uint16_t port) {
    const bool needs_brackets = host.find(':') != std::string::npos && host.front() != '[';
    return (needs_brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::pair<std::string, uint16_t> split_address(const std::string &text) {
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos) return {text, 0};
    std::string host = text.substr(0, colon);
    if (host.size() > 1 && host.front() == '[') host = host.substr(1, host.size() - 2);
    return {host, static_cast<uint16_t>(std::strtoul(text.c_str() + colon + 1, nullptr, 10))};
}

} // namespace noctule_bats

BatsConfiguration::BatsConfiguration() : impl_(new BatsConfigImpl) {}
BatsConfiguration::BatsConfiguration(const BatsConfiguration &other) : impl_(new BatsConfigImpl(*other.impl_)) {}
BatsConfiguration &BatsConfiguration::operator=(const BatsConfiguration &other) {
    *impl_ = *other.impl_;
    return *this;
}
BatsConfiguration::~BatsConfiguration() { delete impl_; }
void BatsConfiguration::SetMode(TransMode mode) { impl_->mode = static_cast<int>(mode); }
void BatsConfiguration::SetCC(CongestionControl control) { impl_->control = static_cast<int>(control); }
void BatsConfiguration::SetTimeout(int timeout) { impl_->timeout = timeout; }
void BatsConfiguration::SetLocalPort(int port) { impl_->local_port = port; }
void BatsConfiguration::SetLocalAddress(const std::string &address) { impl_->local_address = address; }
void BatsConfiguration::SetCertFile(const std::string &path) { impl_->cert_file = path; }
void BatsConfiguration::SetKeyFile(const std::string &path) { impl_->key_file = path; }
void BatsConfiguration::EnableCompression(bool enabled) { impl_->compression = enabled; }
void BatsConfiguration::EnableEncryption(bool enabled) { impl_->encryption = enabled; }
void BatsConfiguration::SetFrameType(FrameType type) { impl_->frame_type = static_cast<int>(type); }
void BatsConfiguration::SetRemoteAddr(const std::string &address) { impl_->remote_address = address; }
void BatsConfiguration::SetRemotePort(int port) { impl_->remote_port = port; }
const BatsConfigImpl &BatsConfiguration::GetImpl() const { return *impl_; }

std::ostream &operator<<(std::ostream &out, const BatsConfiguration &configuration) {
    const BatsConfigImpl &is = *configuration.impl_;
    out << "mode " << mode_name(is.mode) << ", congestion control " << is.control << ", timeout " << is.timeout << " ms, local "
        << host_and_port(is.local_address, static_cast<uint16_t>(is.local_port)) << ", remote " << host_and_port(is.remote_address, static_cast<uint16_t>(is.remote_port));
    // The name of the file, and nothing of what is in it.
    return out << ", certificate " << is.cert_file << ", key " << is.key_file << ", frame type " << is.frame_type;
}
