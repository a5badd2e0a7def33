// SPDX-License-Identifier: BSD-3-Clause
// Turns text files into a tokenized corpus (token_file.hpp), with a loss mask (loss_mask.hpp) where the text is made of
// conversations or of pairs, and with labels (class_labels.hpp) where it is made of examples with classes, shared out over any number of ranks. The
// bytes written do not depend on how many there are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "src/data/documents.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

// The ranks that build together. all_gather gives every rank the numbers of all, and is where they wait for each other.
// together runs an action on every rank; where it has failed on some, the error of the first of them is thrown on all.
struct BuildTeam {
  int rank = 0, size = 1;
  std::function<std::vector<std::int64_t>(std::int64_t)> all_gather = [](std::int64_t x) { return std::vector{x}; };  // [rank]
  std::function<void(const std::function<void()>&)> collective_check = [](const std::function<void()>& action) { action(); };
};

struct BuildOptions {
  std::vector<std::filesystem::path> inputs;  // text files, in the order of the result; the same on every rank
  std::filesystem::path prefix;               // of PREFIX.bin, PREFIX.idx, PREFIX_mask.bin and PREFIX_mask.idx
  DocumentFormat format;                      // where a document ends, which key holds the text, what to do with bad lines
  std::optional<std::int32_t> eod;            // appended to every document; nothing is when empty. To be predicted in a
                                              // conversation where the token before it is
  bool overwrite = false;                     // replace an existing corpus
  bool complete = false;                      // every document gets what the tokenizer's own template puts around a text, as examples with classes
                                              // (labelled.hpp) always do
};

struct BuildReport {
  std::int64_t bytes = 0, documents = 0, tokens = 0;
  std::int64_t learned = 0;        // tokens to be predicted: all, where there is no mask
  std::int64_t labelled = 0;       // tokens that have a class, or whose text has
  std::int64_t skipped_lines = 0;  // invalid ones, where these are skipped
};

// Encodes every document as one sequence. Called by all ranks of the team; all return the same report. Text is encoded
// in blocks of about 1 MiB cut at line starts, so that one large file is shared out too; memory does not grow with the
// input. An error on any rank is thrown on all of them, and nothing is left. Exit::missing, Exit::data (empty input, bad lines), Exit::io (full
// disk), Exit::config (corpus exists, eod not in the vocabulary). `progress` is told bytes done and in all, of this rank's part.
BuildReport build_corpus(const Tokenizer& tokenizer, const BuildOptions& options, const BuildTeam& team = {},
                         const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

}  // namespace gyr
