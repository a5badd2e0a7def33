// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/labelled.hpp"

#include <algorithm>
#include <sstream>

#include "kernels/ops/cross_entropy.hpp"
#include "src/data/json_line.hpp"

namespace gyr {
namespace {

using namespace json_line;

std::int32_t class_of(const json& value, const LabelledFormat& f, const std::string& where) {
  const auto count = std::int64_t(f.classes.size());
  if (value.is_string()) {
    const auto found = std::find(f.classes.begin(), f.classes.end(), value.get_ref<const std::string&>());
    if (found == f.classes.end()) refuse("has the class '{}'{}, which is not one of the {} classes given", value.get<std::string>(), where, count);
    return std::int32_t(found - f.classes.begin());
  }
  if (!value.is_number_integer()) refuse("has {}{}, not the name or number of a class", kind_of(value), where);
  const auto number = value.get<std::int64_t>();
  if (number < 0 || number >= count) refuse("has the class {}{}, but there are {} classes, numbered from 0", number, where, count);
  return std::int32_t(number);
}

std::vector<std::string> words_of(const json& row) {
  std::vector<std::string> words;
  if (!row.contains("tokens")) {
    std::istringstream text(string_of(row, "text"));
    for (std::string word; text >> word;) words.push_back(word);
    return words;
  }
  const json& list = row["tokens"];
  if (!list.is_array()) refuse("has {} under 'tokens', not a list of words", kind_of(list));
  for (const json& word : list) {
    if (!word.is_string() || word.get_ref<const std::string&>().empty())
      refuse("has {} as word {}, not a nonempty string", word.is_string() ? "nothing" : kind_of(word), words.size() + 1);
    words.push_back(word.get<std::string>());
  }
  return words;
}

void read_words(const json& row, const LabelledFormat& f, LabelledText& to) {
  to.words = words_of(row);
  const json& tags = value_of(row, "tags");
  if (!tags.is_array()) refuse("has {} under 'tags', not a list of classes", kind_of(tags));
  if (tags.size() != to.words.size()) refuse("has {} tags for {} words", tags.size(), to.words.size());
  for (const json& tag : tags)
    to.classes.push_back(tag.is_null() ? ignored_label : class_of(tag, f, fmt::format(" as tag {}", to.classes.size() + 1)));
}

}  // namespace

LabelledText read_labelled(std::string_view line, const LabelledFormat& f) {
  LabelledText result;
  try {
    const json row = parse_object(line);
    if (f.of_words) {
      read_words(row, f, result);
    } else {
      result.words = {string_of(row, "text")};
      result.classes = {class_of(value_of(row, "label"), f, " under 'label'")};
    }
    if (result.words.empty() || result.words[0].empty()) refuse("has an empty text");
  } catch (const Problem& problem) {
    result = {{}, {}, problem.what};
  }
  return result;
}

}  // namespace gyr
