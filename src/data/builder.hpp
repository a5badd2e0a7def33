// SPDX-License-Identifier: BSD-3-Clause
// Tokenizes text files into a corpus (token_file.hpp), in parallel on any number of ranks. Conversations, preference
// pairs and source-target pairs also get a loss mask (loss_mask.hpp); labelled examples also get labels
// (class_labels.hpp), and prompts their fields (prompts.hpp). The bytes written do not depend on the number of ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "src/data/documents.hpp"
#include "src/data/fingerprint.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

// The ranks that build a corpus together. all_gather returns the argument of every rank and synchronises the ranks.
// collective_check runs an action on every rank; if it fails on some ranks, all ranks throw the error of the first of
// them.
struct BuildTeam {
  int rank = 0, size = 1;
  // result [rank]: the argument of that rank
  std::function<std::vector<std::int64_t>(std::int64_t)> all_gather = [](std::int64_t x) { return std::vector{x}; };
  std::function<void(const std::function<void()>&)> collective_check = [](const std::function<void()>& action) { action(); };
};

struct BuildOptions {
  std::vector<std::filesystem::path> inputs;  // text files, in the order of the corpus; the same on every rank
  std::filesystem::path prefix;               // PREFIX of the output files PREFIX.bin and PREFIX.idx, PREFIX_mask.* and PREFIX_labels.*
  DocumentFormat format;                      // document boundaries, the JSON key of the text, and the treatment of invalid lines
  std::optional<std::int32_t> eod;            // end-of-document token appended to every document; empty: none. It is a target token
                                              // if the token before it is one
  bool overwrite = false;                     // true: replace an existing corpus; false: an existing corpus is an error
  bool complete = false;  // true: add the special tokens of the tokenizer's post-processor (BOS, EOS, ...) to every document; labelled
                          // examples (labelled.hpp) always get them
  // Content of the fingerprint PREFIX.json, complete on rank 0; empty on all ranks: none is written
  std::optional<TokenizerMark> tokenizer = {};
  std::string program = {};                                             // program with its version
  std::vector<std::pair<std::string, std::string>> given_options = {};  // options of the command line
};

struct BuildReport {
  std::int64_t bytes = 0, documents = 0, tokens = 0;
  std::int64_t learned = 0;        // target tokens (not masked from the loss); all tokens if there is no mask
  std::int64_t labelled = 0;       // tokens with a class; for text classification, texts with a class
  std::int64_t skipped_lines = 0;  // invalid lines that were skipped
};

// Encodes every document as one sequence. Collective: all ranks of the team call it, and all return the same report.
// Text is encoded in blocks of about 1 MiB that begin at line starts, so that one large file is distributed too. Memory
// does not grow with the input. An error on any rank is thrown on all ranks, and no output file remains. Exit::missing,
// Exit::data (empty input, invalid lines), Exit::io (full disk), Exit::usage (corpus exists, or the prefix is an input
// file), Exit::config (eod not in the vocabulary). `progress` receives the bytes done and the total bytes of this rank.
BuildReport build_corpus(const Tokenizer& tokenizer, const BuildOptions& options, const BuildTeam& team = {},
                         const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});
// The same for prompts, with the tokenizer of their format. Without one, all lines must hold token ids.
BuildReport build_prompts(const BuildOptions& options, const BuildTeam& team = {},
                          const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

}  // namespace gyr
