// SPDX-License-Identifier: BSD-3-Clause
// From the spellings of tokens back to text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/tokenizer/pattern.hpp"

namespace gyr {

struct DecoderStep {
  // byte_level joins the tokens and turns letters of the byte alphabet into bytes; fuse joins them; replace and strip change each token;
  // word_pieces takes a prefix from a token that goes on with a word and puts a space before others, clean_up takes away spaces before English
  // punctuation and contractions; spaces puts one between any two; marks are spaces, but those that were put before the first piece.
  enum class Kind { byte_level, fuse, replace, strip, word_pieces, clean_up, spaces, marks };
  Kind kind;
  std::string pattern;              // of replace: PCRE2's syntax
  std::string text;                 // of replace: what is put there; of strip: the character that goes; of word_pieces: the prefix; of marks: one
  std::size_t left = 0, right = 0;  // of strip: how many at most; of marks: whether the first token's go
};

class Decoder {
 public:
  // At most one step is byte_level. Exit::data when a pattern does not compile.
  explicit Decoder(const std::vector<DecoderStep>& steps);

  // It does nothing but join the bytes of tokens.
  bool only_bytes() const { return steps_.size() == 1 && steps_[0].what.kind == DecoderStep::Kind::byte_level; }

  // Tokens as the file spells them, to text. Where steps follow byte_level, bytes that are not UTF-8 become U+FFFD.
  std::string decode(std::vector<std::string> tokens) const;

 private:
  struct Step {
    DecoderStep what;
    std::optional<Pattern> pattern;
  };
  std::vector<Step> steps_;
};

}  // namespace gyr
