#include "iocontext.h"

#include "log.h"
#include "signals.h"

using namespace noctule_bats;

namespace {
// How long the destructor waits until what was sent before is delivered.
constexpr std::chrono::milliseconds FAREWELL{2000};
} // namespace

IOContextImpl::IOContextImpl() : loop_(Loop::start()) {
    if (!loop_->failure().empty()) log(Level::error, "IOContext: " + loop_->failure());
}

IOContextImpl::~IOContextImpl() {
    listen_for_interrupts(this, nullptr);
    loop_->end(FAREWELL);
}

void IOContextImpl::set_signal_callback(SigCallback &&callback) { listen_for_interrupts(this, std::move(callback)); }

IOContext::IOContext() : impl_(new IOContextImpl) {}
IOContext::~IOContext() { delete impl_; }
IOContextImpl &IOContext::GetImpl() const { return *impl_; }
void IOContext::SetBATSLogLevel(BATSLogLevel level) { set_log_level(static_cast<int>(level)); }
void IOContext::SetBATSLogFilePath(const std::string &path) { set_log_file(path); }
void IOContext::SetSignalCallback(SigCallback &&callback) { impl_->set_signal_callback(std::move(callback)); }
