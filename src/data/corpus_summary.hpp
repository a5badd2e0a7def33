// SPDX-License-Identifier: BSD-3-Clause
// What a tokenized corpus holds, for people.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "src/data/token_file.hpp"

namespace gyr {

// Documents by length: [least, most], each bin to twice the length of the one before; the first is the shortest's power of two. None is empty at
// either end.
struct LengthBin {
  std::int64_t least = 0, most = 0, documents = 0, tokens = 0;
};
std::vector<LengthBin> length_bins(const TokenFile&);

// Sizes, lengths as bars, and what stands beside the tokens: a loss mask, labels. Errors of TokenFile.
std::string corpus_summary(const std::filesystem::path& prefix);

}  // namespace gyr
