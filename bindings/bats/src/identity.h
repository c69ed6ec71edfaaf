// Certificate and key files: which identity an end has, and which key it asks of the other. The rule is in docs/guide/bats-api.md.
#ifndef NOCTULE_BATS_IDENTITY_H
#define NOCTULE_BATS_IDENTITY_H

#include "noctule.hpp"
#include "settings.h"

namespace noctule_bats {

// The identity that is made from the key file; a fresh one if no file is configured.
noctule::Result<noctule::Identity> identity_of(const Settings &settings);
// The public key in a certificate file; empty if it has none. An error: it cannot be read.
noctule::Result<std::string> pinned_key(const std::string &cert_file);
// The key that a server must have, or "any".
noctule::Result<std::string> server_key(const Settings &settings);

} // namespace noctule_bats

#endif
