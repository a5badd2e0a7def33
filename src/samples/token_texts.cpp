// SPDX-License-Identifier: BSD-3-Clause
#include "src/samples/token_texts.hpp"

#include "src/tokenizer/utf8.hpp"

namespace gyr {

namespace {

constexpr std::size_t most_joined = 16;  // tokens of an element, in texts that are not UTF-8

// True if the text ends within a character, which further tokens may complete.
bool is_incomplete(const std::string& text) {
  for (std::size_t tail = 1; tail < 4 && tail <= text.size(); ++tail) {
    const auto byte = static_cast<unsigned char>(text[text.size() - tail]);
    if ((byte & 0xc0) == 0x80) continue;  // a continuation byte
    const std::size_t needed = byte < 0xc2 || byte > 0xf4 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    return tail < needed;
  }
  return false;
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
      while (is_incomplete(t.text) && t.count < most_joined && i + t.count < end && is_known(i + t.count)) ++t.count, t.text = text_of();
      before.insert(before.end(), tokens.begin() + std::ptrdiff_t(i), tokens.begin() + std::ptrdiff_t(i + t.count));
      t.text = lossy_utf8(t.text);
    }
    i += t.count;
    texts.push_back(std::move(t));
  }
  return texts;
}

}  // namespace gyr
