// SPDX-License-Identifier: BSD-3-Clause
// Finds the tokens that begin a word, for whole-word masking.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

// Returns 1 for a token that begins a word according to the tokenizer's pre-tokenizer, and 0 for a token that continues
// one. Special tokens, and ids that the tokenizer lacks, separate texts and are not words; their elements of `learned`
// are set to 0.
std::vector<std::uint8_t> word_begins(const Tokenizer&, std::span<const std::int32_t> tokens, std::span<std::uint8_t> learned);

}  // namespace gyr
