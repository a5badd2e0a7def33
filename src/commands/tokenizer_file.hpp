// SPDX-License-Identifier: BSD-3-Clause
// The tokenizer that a command encodes text with.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>

#include "kernels/base/printable.hpp"
#include "src/base/quantity.hpp"
#include "src/checkpoint/chosen_checkpoint.hpp"
#include "src/commands/runtime.hpp"
#include "src/data/fingerprint.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

// Loads a tokenizer. If `speaks`, warns on standard error about bytes without a token, because their text cannot be
// recovered from the ids. Errors as in Tokenizer::load.
inline Tokenizer encoding_tokenizer(const std::string& file, bool speaks) {
  Tokenizer tokenizer = Tokenizer::load(file);
  if (const int lacking = tokenizer.lacks_bytes(); lacking > 0 && speaks)
    std::fprintf(stderr, "warning: %s has no token of its own for %d of the 256 bytes: they become the unknown token or are left out\n",
                 printable(file).c_str(), lacking);
  return tokenizer;
}

// The tokenizer.json that a path stands for: a folder stands for the one in it or, of a run, for that of its deck. Collective.
// Exit::data if a run has none.
inline std::string tokenizer_in(const std::string& path, const Runtime& runtime) {
  return runtime.shared_text([&]() -> std::string {
    std::error_code no;
    const std::filesystem::path inside = std::filesystem::path(path) / "tokenizer.json";
    if (!std::filesystem::is_directory(path, no)) return path;
    if (std::filesystem::exists(inside, no)) return inside.string();
    if (!std::filesystem::exists(std::filesystem::path(path) / "checkpoints", no)) return path;
    const std::string of_run = defaults_of(chosen_checkpoint(path, {})).tokenizer;
    require(!of_run.empty(), Exit::data,
            "--tokenizer {}: the deck of this run names no tokenizer (data.tokenizer); give the path of a tokenizer.json", path);
    return of_run;
  });
}

// Warns of a tokenizer (`file`, loaded as `given`) that is not the one of the model's deck, `own`. Either path may be empty.
inline void note_other_tokenizer(const std::string& file, const std::string& own, const Tokenizer& given) {
  std::error_code error;
  if (file.empty() || own.empty() || !std::filesystem::is_regular_file(own, error)) return;
  if (mark_of(own).sum == mark_of(file).sum) return;
  std::fprintf(stderr, "%s\n",
               printable_line(fmt::format("warning: --tokenizer {} ({}) is not the model's tokenizer, {} ({}): text and figures are meaningless "
                                          "unless equal ids stand for equal tokens. Leave out --tokenizer to use the model's own",
                                          file, counted(given.size(), "token"), own, counted(Tokenizer::load(own).size(), "token")))
                   .c_str());
}

}  // namespace gyr
