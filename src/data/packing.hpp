// SPDX-License-Identifier: BSD-3-Clause
// Packed samples for fine-tuning: each window holds as many full documents as fit, then padding. Every epoch uses every
// document once. A document longer than a window is truncated at its end. A window has L + 1 tokens for next-token
// prediction, and L tokens if the labels belong to the tokens themselves. L: sequence length.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/data/samples.hpp"

namespace gyr {

// Best-fit packing. Returns the window of each item: the window with the least free space that has enough room for it, or a new one. `sizes`
// must be in descending order, and none may exceed `capacity`. Windows are numbered in the order in which they are opened.
std::vector<std::uint32_t> best_fit(const std::vector<std::int64_t>& sizes, std::int64_t capacity);

// Unit of packing: documents, or pairs of documents 2 i and 2 i + 1, which stay adjacent. A pair is never truncated; a
// pair that does not fit a window is left out.
enum class SampleGrouping { texts, pairs };

// Documents are packed once, longest first, so that every epoch has the same number of windows. Each epoch permutes
// documents of equal length among their places, and shuffles the windows and the documents inside each window. Sample n
// is a pure function of (seed, n). `file` must outlive the result. Memory: 8 bytes per document and 4 per window, and
// 24 more per document during packing. `reserved`: tokens that a window keeps free for each document, because the caller
// adds them. Exit::data if the range holds no document with a token that is predicted or
// labelled. Exit::config if the document numbers exceed 32 bits.
std::unique_ptr<Samples> packed_samples(const TokenFile& file, SequenceRange r, std::int64_t L, std::uint64_t seed, bool predicts = true,
                                        SampleGrouping grouping = SampleGrouping::texts, std::int64_t reserved = 0);

}  // namespace gyr
