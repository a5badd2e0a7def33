// SPDX-License-Identifier: BSD-3-Clause
// Reads one JSON line as an example for classification. {"text": "...", "label": "good"} labels a text; {"tokens":
// ["A", "word", ...], "tags": ["O", "B", ...]} labels its words. Instead of "tokens", {"text": "A word ..."} is split
// at white space. A class is a name or a number; null means that a word has no class.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyr {

struct LabelledFormat {
  std::vector<std::string> classes;  // class names, in the order of their numbers
  bool of_words = false;
};

struct LabelledText {
  std::vector<std::string> words;     // the words, or the text as a single element if the text has one label
  std::vector<std::int32_t> classes;  // class of each element of words, or ignored_label
  std::string problem;                // why the line is invalid, to be put after "the line "; empty if it is valid
};

// Ignores other keys. A line is invalid if it is no JSON object, if a key is missing or has the wrong type, if a text
// or word is empty, if a class is unknown, or if the tag count differs from the word count.
LabelledText read_labelled(std::string_view line, const LabelledFormat& format);

}  // namespace gyr
