// SPDX-License-Identifier: BSD-3-Clause
// Notes about input that a command ignores, and about the checkpoint that it takes. Rank 0 prints them to standard
// error.
#pragma once

#include <cstdio>

#include "kernels/base/error.hpp"
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

// Exit::usage if the model of an export does not exist, but its output is one: the two words were exchanged.
inline void require_order(const char* command, const std::filesystem::path& model, const std::filesystem::path& output) {
  std::error_code no;
  const auto is_model = [&](const char* name) { return std::filesystem::exists(output / name, no); };
  require(std::filesystem::exists(model, no) || !(is_model("checkpoints") || is_model("manifest.json") || is_model("config.json")), Exit::usage,
          "{0}: does not exist, and {1} is a model; the model comes first: gyrfalcon {2} {1} {0}", model.string(), output.string(), command);
}

}  // namespace gyr
