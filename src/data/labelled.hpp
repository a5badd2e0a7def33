// SPDX-License-Identifier: BSD-3-Clause
// One line of JSON as an example to learn classes from: {"text": "...", "label": "good"} of a whole text, {"tokens": ["A", "word", ...], "tags":
// ["O", "B", ...]} of its words, which may also be {"text": "A word ..."} cut at white space. A class is a name or a number; null: a word has none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyr {

struct LabelledFormat {
  std::vector<std::string> classes;  // names, in the order of their numbers
  bool of_words = false;
};

struct LabelledText {
  std::vector<std::string> words;     // a text that is labelled as a whole is one
  std::vector<std::int32_t> classes;  // of each, or ignored_label
  std::string problem;                // what is wrong with the line, as in "the line ..."; empty when nothing is
};

// Other keys are passed over. A problem: no valid JSON object, a key that is missing or of another kind, an empty text or word, a class that there is
// not, another number of tags than of words.
LabelledText read_labelled(std::string_view line, const LabelledFormat& format);

}  // namespace gyr
