// SPDX-License-Identifier: BSD-3-Clause
// Notes about input that a command ignores, and about the checkpoint that it takes. Rank 0 prints them to standard
// error.
#pragma once

#include <cstdio>

#include "kernels/base/printable.hpp"
#include "src/base/note.hpp"
#include "src/checkpoint/chosen_checkpoint.hpp"
#include "src/commands/runtime.hpp"

namespace gyr {

inline void print_note(const std::string& text) { std::fprintf(stderr, "note: %s\n", printable_line(text).c_str()); }

inline Note notes_of(const Runtime& runtime) {
  if (runtime.rank() != 0) return {};
  return print_note;
}

// The checkpoint or Hugging Face folder that a path on the command line stands for (chosen_checkpoint.hpp), the same on
// every rank. Collective.
inline std::string chosen_model(const std::string& path, const Runtime& runtime, const Note& note) {
  return runtime.shared_text([&] { return chosen_checkpoint(path, note).string(); });
}

}  // namespace gyr
