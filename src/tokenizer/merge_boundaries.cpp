// SPDX-License-Identifier: BSD-3-Clause
#include "src/tokenizer/merge_boundaries.hpp"

#include <algorithm>

#include "src/tokenizer/tokenizer.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {

MergeBoundaries::MergeBoundaries(const Vocabulary& vocabulary, const InitialSymbols::Ids& ids, const InitialSymbols& symbols)
    : nothing_unknown_(symbols.all_bytes()) {
  std::vector<bool> merged(vocabulary.tokens.size());
  for (const Merge& merge : vocabulary.merges) merged[std::size_t(merge.result)] = true;
  const bool dropped = !vocabulary.unknown && !nothing_unknown_;  // the neighbours of a character without symbols can merge
  substitutes_part_ = !dropped && std::ranges::none_of(vocabulary.merges, [&](const Merge& merge) {
    return symbols.is_substitute(merge.left) || symbols.is_substitute(merge.right);
  });
  for (const auto& [text, id] : ids) {
    const Character first = character_at(text, 0);
    if (first.length == text.size()) joined_.insert(std::int32_t(first.point), own_token, 0);
    if (!merged[std::size_t(id)]) continue;
    for (std::size_t at = first.length, left = first.point; at < text.size();) {
      const Character right = character_at(text, at);
      joined_.insert(std::int32_t(left), std::int32_t(right.point), 0);
      left = right.point;
      at += right.length;
    }
  }
  for (char32_t left = 0; left < ascii; ++left)
    for (char32_t right = 0; right < ascii; ++right) ascii_[left * ascii + right] = computed(left, right);
}

// Two characters with tokens can be in one merge only if they are adjacent in its result. If substitutes never merge, a
// character without a token separates its neighbours. Between two such characters, an unknown token may be due
// (InitialSymbols::append).
bool MergeBoundaries::computed(char32_t left, char32_t right) const {
  const int tokens = int(has_token(left)) + int(has_token(right));
  if (tokens == 2) return joined_.find(std::int32_t(left), std::int32_t(right)) == PairMap::none;
  return substitutes_part_ && (tokens == 1 || nothing_unknown_);
}

std::size_t MergeBoundaries::segment(std::string_view text) const {
  Character left = character_at(text, 0);
  std::size_t at = left.length;
  while (at < text.size()) {
    const Character right = character_at(text, at);
    if (is_boundary(left.point, right.point)) break;
    at += right.length;
    left = right;
  }
  return at;
}

}  // namespace gyr
