// SPDX-License-Identifier: BSD-3-Clause
// Exact division of a long piece before merging. SentencePiece-style tokenizers have no pre-tokenizer, so a document is
// one piece. No merge crosses the boundary between two characters that are adjacent in no result of a merge. The
// segments between such boundaries are merged separately, with the same result as the whole piece. In published
// vocabularies they are words, which the cache knows, so that the time is linear and the memory is that of the longest
// word.
#pragma once

#include <bitset>
#include <string_view>

#include "src/tokenizer/initial_symbols.hpp"
#include "src/tokenizer/pair_map.hpp"

namespace gyr {

class MergeBoundaries {
 public:
  // `vocabulary`: BPE whose units are characters. `ids`: id of each token of the model, by its text.
  MergeBoundaries(const Vocabulary& vocabulary, const InitialSymbols::Ids& ids, const InitialSymbols& symbols);

  // Length of the first segment of `text`, which is nonempty, valid UTF-8.
  std::size_t segment(std::string_view text) const;

 private:
  static constexpr char32_t ascii = 0x80;
  static constexpr std::int32_t own_token = -1;  // marks a character with its own token, in place of a right neighbour
  bool has_token(char32_t c) const { return joined_.find(std::int32_t(c), own_token) != PairMap::none; }
  bool computed(char32_t left, char32_t right) const;
  bool is_boundary(char32_t left, char32_t right) const {
    return left < ascii && right < ascii ? ascii_[left * ascii + right] : computed(left, right);
  }

  PairMap joined_;                    // (left, right): characters that are adjacent in a result of a merge
  bool substitutes_part_;             // byte-fallback and unknown tokens exist for all characters, and no merge contains them
  bool nothing_unknown_;              // every character without a token has byte-fallback tokens
  std::bitset<ascii * ascii> ascii_;  // is_boundary() of ASCII characters
};

}  // namespace gyr
