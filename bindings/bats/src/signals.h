// SIGINT, told on a thread of its own where it was asked for: callbacks of connections may be waiting for what it changes.
#ifndef NOCTULE_BATS_SIGNALS_H
#define NOCTULE_BATS_SIGNALS_H

#include <functional>

namespace noctule_bats {

// From now on `callback` is told of SIGINT in the name of `owner`; an empty one ends that, and no callback of `owner` runs when this returns (unless in one). The
// signal does what it did before once nobody listens.
void listen_for_interrupts(const void *owner, std::function<void(int)> callback);

} // namespace noctule_bats

#endif
