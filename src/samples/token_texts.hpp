// SPDX-License-Identifier: BSD-3-Clause
// Text of each token of an answer, so that a page can mark tokens one by one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

// Valid UTF-8 that consecutive tokens add to the text. A character of several tokens is one element.
struct TokenText {
  std::string text = {};
  std::size_t first = 0, count = 1;  // tokens
  bool special = false;
};

// Texts of tokens[begin, end). The tokens before them decide about spaces. Without a tokenizer, and for an id that it does not
// have, the text is the id.
std::vector<TokenText> token_texts(const Tokenizer*, std::span<const std::int32_t> tokens, std::size_t begin, std::size_t end);

}  // namespace gyr
