// What an IOContext owns: the loop.
#ifndef NOCTULE_BATS_IOCONTEXT_IMPL_H
#define NOCTULE_BATS_IOCONTEXT_IMPL_H

#include "bats_iocontext.h"
#include "loop.h"

class IOContextImpl {
public:
    IOContextImpl();
    ~IOContextImpl();
    const std::shared_ptr<noctule_bats::Loop> &loop() const { return loop_; }
    void set_signal_callback(SigCallback &&callback);

private:
    std::shared_ptr<noctule_bats::Loop> loop_;
};

#endif
