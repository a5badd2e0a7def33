// SPDX-License-Identifier: BSD-3-Clause
// Trains a byte-level BPE tokenizer: the most frequent pair of adjacent tokens becomes a new token, repeatedly
// (Sennrich et al. 2016).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/documents.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

struct TrainerOptions {
  std::int64_t vocab_size = 32768;     // number of tokens, including special tokens and the 256 bytes
  std::int64_t min_frequency = 2;      // a pair with fewer occurrences is not merged
  std::int64_t max_token_bytes = 128;  // maximum token length; avoids tokens for rows of dashes or base64 data
  std::vector<std::string> specials = {"<|pad|>", "<|bos|>", "<|endoftext|>"};  // special tokens; they get the ids 0, 1, 2, ...
  DocumentFormat format;                                                        // document boundaries and JSON keys of the input files
};

// Called repeatedly with the progress of the current phase: "reading" in bytes, then "merging" in tokens.
using TrainerProgress = std::function<void(std::string_view phase, std::int64_t done, std::int64_t total)>;

// The vocabulary depends only on the text and the options. Among equally frequent pairs, the one with the smaller left
// id is merged first, then the one with the smaller right id. If the text has too few pairs, the vocabulary is smaller
// than requested. Memory is proportional to the number of distinct pieces, not to the text. Exit::config for invalid
// options, Exit::data if the files hold no text, and the errors of DocumentFile.
Tokenizer train_tokenizer(std::span<const std::filesystem::path> files, const TrainerOptions& options, const TrainerProgress& progress = {});

}  // namespace gyr
