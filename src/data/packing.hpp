// SPDX-License-Identifier: BSD-3-Clause
// Samples of whole documents, for fine-tuning: every window holds as many documents as fit, and padding. Every epoch holds every document once; those
// longer than a window are cut at its end. A window has L + 1 tokens where the last is one that is to be predicted, and L where tokens that are read
// are labelled themselves.   L sequence length
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/data/samples.hpp"

namespace gyr {

// Which window each of a row of items goes into: the fullest that still has room for it, or a new one. `sizes` do not
// grow along the row and none exceeds `room`. Windows are numbered as they are opened.
std::vector<std::uint32_t> best_fit(const std::vector<std::int64_t>& sizes, std::int64_t room);

// What is packed: documents, or pairs of them, 2 i and 2 i + 1, next to each other. A pair is never cut: those that do not fit a window are left out.
enum class SampleGrouping { texts, pairs };

// Documents are packed once, longest first, so that an epoch always has the same number of windows; each epoch then distributes
// the documents of equal length anew over their places, and shuffles the windows and the documents inside each. Sample n
// is a pure function of (seed, n). `file` must outlive the result. Takes 8 bytes per document and 4 per window (24 more per document while it packs).
// Exit::data when the range holds no document with a token that is predicted or labelled; Exit::config when there are more documents than 32 bits
// count.
std::unique_ptr<Samples> packed_samples(const TokenFile& file, SequenceRange r, std::int64_t L, std::uint64_t seed, bool predicts = true,
                                        SampleGrouping together = SampleGrouping::texts);

}  // namespace gyr
