// SPDX-License-Identifier: BSD-3-Clause
// Search for added tokens in a trie of their bytes.
#include "src/tokenizer/added_tokens.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "src/tokenizer/characters.hpp"

namespace gyr {

AddedMatcher::AddedMatcher() : word_(word_character, "word character") {}

void AddedMatcher::add(std::string_view spelling, const AddedToken& token) {
  require(!spelling.empty(), Exit::data, "added token '{}' is empty after normalization", token.content);
  std::int32_t node = 0;
  for (const char c : spelling) {
    const auto [next, fresh] = below_.insert(node, static_cast<unsigned char>(c), std::uint32_t(token_at_.size()));
    if (fresh) token_at_.push_back(-1);
    node = std::int32_t(next);
  }
  require(token_at_[std::size_t(node)] < 0, Exit::data, "added token '{}' has the same spelling as another added token", token.content);
  token_at_[std::size_t(node)] = std::int32_t(tokens_.size());
  tokens_.push_back(token);
  begins_one_[static_cast<unsigned char>(spelling[0])] = true;
}

bool AddedMatcher::find(std::string_view text, std::size_t from, Part& part) const {
  for (std::size_t i = from; i < text.size(); ++i) {
    if (!begins_one_[static_cast<unsigned char>(text[i])]) continue;
    part.token = nullptr;
    std::uint32_t node = 0;
    for (std::size_t j = i; j < text.size(); ++j) {
      node = below_.find(std::int32_t(node), static_cast<unsigned char>(text[j]));
      if (node == PairMap::none) break;
      if (const auto token = token_at_[node]; token >= 0) part = {i, j + 1, &tokens_[std::size_t(token)]};
    }
    if (part.token) return true;
  }
  return false;
}

bool AddedMatcher::is_delimited(std::string_view text, const Part& part) const {
  if (!part.token->single_word) return true;
  Pattern::Scratch scratch;
  const auto is_word = [&](Character c) {
    std::string one;
    append_character(one, stand_in(c.point).value_or(c.point));
    return word_.find(one, 0, scratch).has_value();
  };
  return (part.begin == 0 || !is_word(character_before(text, part.begin))) && (part.end == text.size() || !is_word(character_at(text, part.end)));
}

// Extends the match over white space before it (lstrip; not beyond `done`, the end of the previous match) and after it
// (rstrip).
void AddedMatcher::widen(std::string_view text, std::size_t done, Part& part) {
  if (part.token->lstrip) {
    part.begin = std::max(part.begin, done);
    while (part.begin > done && is_white_space(character_before(text, part.begin).point)) part.begin -= character_before(text, part.begin).length;
  }
  if (part.token->rstrip)
    while (part.end < text.size() && is_white_space(character_at(text, part.end).point)) part.end += character_at(text, part.end).length;
}

}  // namespace gyr
