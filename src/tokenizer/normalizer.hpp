// SPDX-License-Identifier: BSD-3-Clause
// Normalizes text before pre-tokenization: Unicode normal forms, lowercase, replacements. The results equal those of
// `tokenizers`, even where its tables belong to an older version of Unicode.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/character_map.hpp"
#include "src/tokenizer/pattern.hpp"

namespace gyr {

struct NormalizerStep {
  // clean, surround_han and strip_nonspacing are steps of BertNormalizer: clean_text, handle_chinese_chars and
  // strip_accents.
  enum class Kind { nfc, nfd, nfkc, nfkd, lowercase, strip_accents, strip, prepend, replace, clean, surround_han, strip_nonspacing, map };
  Kind kind;
  std::string pattern;               // replace: regular expression in PCRE2 syntax
  std::string text;                  // prepend: text to insert; replace: replacement; map: binary character map (character_map.hpp)
  bool left = false, right = false;  // strip: remove white space at the start, at the end
};

class Normalizer {
 public:
  // Exit::data if a pattern does not compile or a character map is invalid.
  explicit Normalizer(const std::vector<NormalizerStep>& steps);

  bool empty() const { return steps_.empty(); }

  // Applies the steps in order, without prepend steps if `prefix` is false. `text` must be valid UTF-8 and remains so.
  // Exit::data if a pattern exceeds its matching limit or the text grows more than 64-fold.
  void apply(std::string& text, Pattern::Scratch& scratch, bool prefix = true) const;

 private:
  struct Step {
    NormalizerStep what;
    std::optional<Pattern> pattern;
    std::optional<CharacterMap> map;
  };
  std::vector<Step> steps_;
};

// Replaces every match of `pattern` in `text` by `by`. Exit::data as in Normalizer::apply.
std::string replaced(std::string_view text, const Pattern& pattern, std::string_view by, Pattern::Scratch& scratch);

}  // namespace gyr
