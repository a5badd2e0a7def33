// SPDX-License-Identifier: BSD-3-Clause
// Errors: a message with the values and a remedy, and a documented exit code for each reason.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace gyr {

// Exit codes of every command (sysexits.h where it has one). Jobscripts resubmit on `again` only.
enum class Exit : int {
  ok = 0,
  usage = 64,     // error in the command line
  data = 65,      // invalid content of a file
  missing = 66,   // missing file
  internal = 70,  // bug of this program
  device = 69,    // error of MPI or of a device (set-up, memory, a kernel), or a wrong number of ranks
  io = 74,        // a write or read failed (full disk)
  again = 75,     // stopped early by a signal, the time limit or the watchdog; resubmitting continues the run
  config = 78,    // error in the deck
  numeric = 80,   // loss or gradient not finite, or replicas that differ
  unequal = 81,   // gyrfalcon verify: the ranks do not compute what one rank does
};

class Error : public std::runtime_error {
 public:
  Error(Exit code, const std::string& what) : std::runtime_error(what), code(code) {}
  Exit code;
};

template <class... Args>
[[noreturn]] void fail(Exit code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

// Fails with `code` and the message unless `condition` holds. The message states what is wrong, where, and what to do.
template <class... Args>
void require(bool condition, Exit code, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) [[unlikely]]
    fail(code, text, std::forward<Args>(args)...);
}

// Checks a condition that only a bug of this program can violate.
template <class... Args>
void ensure(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) [[unlikely]]
    fail(Exit::internal, text, std::forward<Args>(args)...);
}

}  // namespace gyr
