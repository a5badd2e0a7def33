// SPDX-License-Identifier: BSD-3-Clause
// Notes about input that a command ignores. Rank 0 prints them to standard error.
#pragma once

#include <cstdio>

#include "kernels/base/printable.hpp"
#include "src/base/note.hpp"
#include "src/commands/runtime.hpp"

namespace gyr {

inline void print_note(const std::string& text) { std::fprintf(stderr, "note: %s\n", printable_line(text).c_str()); }

inline Note notes_of(const Runtime& runtime) {
  if (runtime.rank() != 0) return {};
  return print_note;
}

}  // namespace gyr
