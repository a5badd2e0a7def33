// SPDX-License-Identifier: BSD-3-Clause
#include "src/policy/rewards/normalize.hpp"

#include <algorithm>

#include "src/tokenizer/characters.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {

std::string normalized(std::string_view text, const std::vector<std::string>& steps) {
  const auto has = [&](const char* step) { return std::find(steps.begin(), steps.end(), step) != steps.end(); };
  const bool punctuation = has("punctuation"), lower = has("lower"), spaces = has("spaces"), strip = has("strip");
  const std::string valid = lossy_utf8(text);
  std::string result;
  std::size_t end = 0;       // bytes of the result up to its last character that is not white space
  bool after_white = false;  // the last character of the result is white space
  for (std::size_t at = 0; at < valid.size();) {
    const Character c = character_at(valid, at);
    at += c.length;
    if (punctuation && is_punctuation(c.point)) continue;
    const bool white = is_white_space(c.point);
    const bool left_out = white && ((strip && end == 0) || (spaces && after_white));
    if (!left_out && white && spaces) result += ' ';
    else if (!left_out && lower) append_lowercase(result, c.point);
    else if (!left_out) append_character(result, c.point);
    after_white = white;
    if (!white) end = result.size();
  }
  if (strip) result.resize(end);
  return result;
}

}  // namespace gyr
