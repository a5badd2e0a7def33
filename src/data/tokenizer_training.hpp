// SPDX-License-Identifier: BSD-3-Clause
// Learns a byte-level vocabulary: again and again, the most frequent pair of neighbours becomes a token (Sennrich et
// al. 2016).
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
  std::int64_t vocab_size = 32768;                                              // tokens, special ones and the 256 bytes included
  std::int64_t min_frequency = 2;                                               // a pair seen less often makes no token
  std::int64_t max_token_bytes = 128;                                           // a longer token is never made (rulers of dashes, base64)
  std::vector<std::string> specials = {"<|pad|>", "<|bos|>", "<|endoftext|>"};  // ids 0, 1, 2, ...
  DocumentFormat format;                                                        // how the files hold text
};

// Told from time to time how far the current phase ("reading", in bytes, or "merging", in tokens) has come.
using TrainerProgress = std::function<void(std::string_view phase, std::int64_t done, std::int64_t total)>;

// The vocabulary depends on the text and the options alone. Of pairs that are equally frequent, the one with the
// smaller left id, then the smaller right id, goes first. Where the text has too few pairs, the vocabulary stays
// smaller than asked. Memory is proportional to the number of distinct pieces, not to the text. Exit::config for
// impossible options, Exit::data when the files hold no text, and what DocumentFile throws.
Tokenizer train_tokenizer(std::span<const std::filesystem::path> files, const TrainerOptions& options, const TrainerProgress& progress = {});

}  // namespace gyr
