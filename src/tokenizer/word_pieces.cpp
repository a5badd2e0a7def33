// SPDX-License-Identifier: BSD-3-Clause
#include "src/tokenizer/word_pieces.hpp"

#include <algorithm>

#include "src/tokenizer/utf8.hpp"

namespace gyr {

void WordPieces::add(std::string_view spelling, std::int32_t id) {
  at_begin_.emplace(spelling, id);
  longest_begin_ = std::max(longest_begin_, spelling.size());
  if (!goes_on(spelling)) return;
  const std::string_view rest = spelling.substr(rule_.prefix.size());
  inside_.emplace(rest, id);
  longest_inside_ = std::max(longest_inside_, rest.size());
}

// The longest token that is a prefix of `text` and ends at a character boundary.
std::optional<WordPieces::Found> WordPieces::longest(const Ids& ids, std::string_view text, std::size_t most) {
  std::size_t end = std::min(text.size(), most);
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  for (; end > 0; end -= character_before(text, end).length)
    if (const auto found = ids.find(text.substr(0, end)); found != ids.end()) return Found{end, found->second};
  return std::nullopt;
}

bool WordPieces::split_piece(std::string_view word, std::vector<std::int32_t>& ids) const {
  const auto characters = std::count_if(word.begin(), word.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
  if (characters > rule_.most_characters || valid_utf8_prefix(word) < word.size()) return false;
  const std::size_t before = ids.size();
  for (std::size_t at = 0; at < word.size();) {
    const auto found = at == 0 ? longest(at_begin_, word, longest_begin_) : longest(inside_, word.substr(at), longest_inside_);
    if (!found) {
      ids.resize(before);
      return false;
    }
    ids.push_back(found->id);
    at += found->length;
  }
  return true;
}

}  // namespace gyr
