// SPDX-License-Identifier: BSD-3-Clause
// Where the words of a text are among its tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

// 1 where a token begins a word: where the tokenizer's rule cuts the text that the tokens spell between special tokens, and 0 where a token goes on
// with the word before it. learned of special tokens, which are no words, becomes 0.
std::vector<std::uint8_t> word_begins(const Tokenizer&, std::span<const std::int32_t> tokens, std::span<std::uint8_t> learned);

}  // namespace gyr
