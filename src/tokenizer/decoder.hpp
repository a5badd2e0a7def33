// SPDX-License-Identifier: BSD-3-Clause
// Decoder of a tokenizer: converts token spellings back to text (`decoder` in tokenizer.json).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/tokenizer/pattern.hpp"

namespace gyr {

struct DecoderStep {
  // byte_level: joins the tokens and maps letters of the byte alphabet to bytes. fuse: joins the tokens. replace,
  // strip: change each token. word_pieces: removes the continuation prefix, or else puts a space before the token.
  // clean_up: removes spaces before English punctuation and contractions. spaces: puts a space between tokens. marks
  // (Metaspace): replaces marks by spaces, or removes those of the first token. byte_fallback: replaces each run of
  // tokens "<0xC4>" by the character string of its bytes, or by one U+FFFD per byte if that is not valid UTF-8.
  enum class Kind { byte_level, fuse, replace, strip, word_pieces, clean_up, spaces, marks, byte_fallback };
  Kind kind;
  std::string pattern;              // replace: regular expression in PCRE2 syntax
  std::string text;                 // replace: replacement; strip: character to remove; word_pieces: continuation prefix; marks: mark character
  std::size_t left = 0, right = 0;  // strip: maximum count removed at each end; marks: left > 0 removes the marks of the first token
};

class Decoder {
 public:
  // At most one step may be byte_level. Exit::data if a pattern does not compile.
  explicit Decoder(const std::vector<DecoderStep>& steps);

  // True if the decoder only joins the bytes of the tokens.
  bool only_bytes() const { return steps_.size() == 1 && steps_[0].what.kind == DecoderStep::Kind::byte_level; }

  // Converts token spellings, as in tokenizer.json, to text. If steps follow byte_level, invalid UTF-8 becomes U+FFFD.
  std::string decode(std::vector<std::string> tokens) const;

 private:
  struct Step {
    DecoderStep what;
    std::optional<Pattern> pattern;
  };
  std::vector<Step> steps_;
};

}  // namespace gyr
