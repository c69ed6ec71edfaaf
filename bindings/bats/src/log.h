// Lines for people: what was refused, what is done otherwise than asked, why a connection failed.
#ifndef NOCTULE_BATS_LOG_H
#define NOCTULE_BATS_LOG_H

#include <string>

namespace noctule_bats {

// The numbers are those of the interface.
enum class Level { trace = 0, debug, info, warn, error };

// Of the process.
void set_log_level(int level);
// Appends to this file from now on; an empty path is standard error.
void set_log_file(const std::string &path);
void log(Level level, const std::string &words);

} // namespace noctule_bats

#endif
