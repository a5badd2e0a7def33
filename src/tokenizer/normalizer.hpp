// SPDX-License-Identifier: BSD-3-Clause
// What happens to text before it is cut: normal forms, small letters, replacements. The result is that of `tokenizers`, also where its
// tables are those of an older Unicode than ours.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/character_map.hpp"
#include "src/tokenizer/pattern.hpp"

namespace gyr {

struct NormalizerStep {
  // clean, part_han and strip_nonspacing are parts of BertNormalizer.
  enum class Kind { nfc, nfd, nfkc, nfkd, lowercase, strip_accents, strip, prepend, replace, clean, part_han, strip_nonspacing, map };
  Kind kind;
  std::string pattern;               // of replace: PCRE2's syntax
  std::string text;                  // of prepend and replace: what is put there; of map: its bytes (character_map.hpp)
  bool left = false, right = false;  // of strip: where white space goes
};

class Normalizer {
 public:
  // Exit::data when a pattern does not compile, or a map is none.
  explicit Normalizer(const std::vector<NormalizerStep>& steps);

  bool empty() const { return steps_.empty(); }

  // Takes the steps in order. `text` is valid UTF-8 and stays so. Exit::data when a pattern passes its matching limit or
  // the text grows out of all proportion.
  void apply(std::string& text, Pattern::Scratch& scratch) const;

 private:
  struct Step {
    NormalizerStep what;
    std::optional<Pattern> pattern;
    std::optional<CharacterMap> map;
  };
  std::vector<Step> steps_;
};

// `text` with every match of `pattern` replaced. Exit::data as above.
std::string replaced(std::string_view text, const Pattern& pattern, std::string_view by, Pattern::Scratch& scratch);

}  // namespace gyr
