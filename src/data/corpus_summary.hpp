// SPDX-License-Identifier: BSD-3-Clause
// Human-readable summary of a tokenized corpus.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "src/data/token_file.hpp"

namespace gyr {

// Histogram of document lengths in tokens. A bin covers the lengths [least, most], with least a power of two and most =
// 2 least - 1; empty documents have the bin [0, 0]. The first and the last bin returned are not empty.
struct LengthBin {
  std::int64_t least = 0, most = 0, documents = 0, tokens = 0;
};
std::vector<LengthBin> length_bins(const TokenFile&);

// Returns sizes, a histogram of document lengths, and counts of the loss mask and the labels if the corpus has them.
// Throws the errors of TokenFile.
std::string corpus_summary(const std::filesystem::path& prefix);

}  // namespace gyr
