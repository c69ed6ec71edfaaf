// The thread that callbacks of the BATS API run on.
#ifndef NOCTULE_BATS_IOCONTEXT_H
#define NOCTULE_BATS_IOCONTEXT_H

#include <functional>
#include <memory>
#include <string>

enum class BATSLogLevel : int { LOG_TRACE = 0, LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

using SigCallback = std::function<void(int)>;

class IOContextImpl;

// Callbacks of everything that is made with a context run on its thread, one after another. Destroying it ends connections, what was sent is delivered (at most
// two seconds long), and no callback runs afterwards; in a callback it does not wait for that callback.
class IOContext {
public:
    IOContext();
    virtual ~IOContext();
    IOContext(const IOContext &) = delete;
    IOContext &operator=(const IOContext &) = delete;

    IOContextImpl &GetImpl() const;
    // Of the process; at first LOG_WARN.
    void SetBATSLogLevel(BATSLogLevel level);
    // Lines are appended to this file instead of standard error.
    void SetBATSLogFilePath(const std::string &path);
    // From now on SIGINT does not end the process but is told here, on a thread of its own. An empty function gives the signal back.
    void SetSignalCallback(SigCallback &&callback);

protected:
    IOContextImpl *impl_;
};

#endif
