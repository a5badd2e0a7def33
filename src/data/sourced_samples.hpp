// SPDX-License-Identifier: BSD-3-Clause
// Encoder-decoder samples: an encoder input and its target text, sequences 2 i and 2 i + 1 of a token file (data build
// --source).
#pragma once

#include <memory>

#include "src/data/samples.hpp"

namespace gyr {

// Every epoch visits every pair once, in an order that is a pure function of (seed, epoch); epochs never end. The
// extracts of a sample are the encoder input and the target text. A sequence longer than max_source_tokens or max_text_tokens
// (tokens) is truncated at its end. `file` must outlive the result. Exit::data if a sequence is empty.
std::unique_ptr<Samples> sourced_samples(const TokenFile& file, SequenceRange r, std::int64_t max_source_tokens, std::int64_t max_text_tokens,
                                         std::uint64_t seed);

}  // namespace gyr
