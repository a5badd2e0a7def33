// SPDX-License-Identifier: BSD-3-Clause
#include "src/samples/token_texts.hpp"

#include "src/tokenizer/utf8.hpp"

namespace gyr {

namespace {

constexpr std::size_t longest_character = 4;  // in bytes, and therefore in tokens

// True if the text ends within a character, which further tokens may complete.
bool is_incomplete(const std::string& text) {
  const std::size_t valid = valid_utf8_prefix(text), left = text.size() - valid;
  if (left == 0 || left >= longest_character) return false;
  const auto lead = static_cast<unsigned char>(text[valid]);
  return lead >= 0xc2 && lead <= 0xf4;
}

}  // namespace

std::vector<TokenText> token_texts(const Tokenizer* tokenizer, std::span<const std::int32_t> tokens, std::size_t begin, std::size_t end) {
  std::vector<TokenText> texts;
  std::vector<std::int32_t> before;  // known tokens so far
  const auto is_known = [&](std::size_t i) { return tokenizer && tokenizer->has(tokens[i]); };
  for (std::size_t i = 0; i < begin; ++i)
    if (is_known(i)) before.push_back(tokens[i]);
  for (std::size_t i = begin; i < end;) {
    TokenText t{.first = i};
    if (!is_known(i)) {
      t.text = fmt::format("{} ", tokens[i]);
    } else {
      t.special = tokenizer->is_special(tokens[i]);
      const auto text_of = [&] { return tokenizer->decode_after(before, tokens.subspan(i, t.count)); };
      t.text = text_of();
      while (is_incomplete(t.text) && t.count < longest_character && i + t.count < end && is_known(i + t.count)) ++t.count, t.text = text_of();
      before.insert(before.end(), tokens.begin() + std::ptrdiff_t(i), tokens.begin() + std::ptrdiff_t(i + t.count));
      t.text = lossy_utf8(t.text);
    }
    i += t.count;
    texts.push_back(std::move(t));
  }
  return texts;
}

}  // namespace gyr
