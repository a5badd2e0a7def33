// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/characters.hpp"

#include <utf8proc.h>

#include <algorithm>

#include "src/jinja/case_table.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::jinja {

namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(utf8proc_int32_t(c)); }

// The characters that the properties Other_Uppercase and Other_Lowercase add to the categories Lu and Ll.
bool is_other_upper(char32_t c) {
  return (c >= 0x2160 && c <= 0x216f) || (c >= 0x24b6 && c <= 0x24cf) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
         (c >= 0x1f170 && c <= 0x1f189);
}
bool is_other_lower(char32_t c) {
  return c == 0xaa || c == 0xba || (c >= 0x2b0 && c <= 0x2b8) || c == 0x2c0 || c == 0x2c1 || (c >= 0x2e0 && c <= 0x2e4) || c == 0x345 || c == 0x37a ||
         (c >= 0x1d2c && c <= 0x1d6a) || c == 0x1d78 || (c >= 0x1d9b && c <= 0x1dbf) || c == 0x2071 || c == 0x207f || (c >= 0x2090 && c <= 0x209c) ||
         (c >= 0x2170 && c <= 0x217f) || (c >= 0x24d0 && c <= 0x24e9) || c == 0x2c7c || c == 0x2c7d || c == 0xa69c || c == 0xa69d || c == 0xa770 ||
         c == 0xa7f8 || c == 0xa7f9 || (c >= 0xab5c && c <= 0xab5f);
}

const SpecialCase* special_case(char32_t c) {
  const auto* row =
      std::lower_bound(std::begin(special_cases), std::end(special_cases), c, [](const SpecialCase& s, char32_t x) { return s.character < x; });
  return row != std::end(special_cases) && row->character == c ? row : nullptr;
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT; }

// Characters that the rule of the final sigma skips. Approximated by categories and the common marks.
bool is_case_ignorable(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_LM ||
         k == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' || c == 0xb7 || c == 0x387 || c == 0x5f4 || c == 0x2018 || c == 0x2019 ||
         c == 0x2024 || c == 0x2027 || c == 0xfe13 || c == 0xfe52 || c == 0xfe55 || c == 0xff07 || c == 0xff0e || c == 0xff1a;
}

// True if the sigma at [begin, end) ends a word: a cased character precedes it and none follows it.
bool ends_word(std::string_view text, std::size_t begin, std::size_t end) {
  bool before = false;
  for (std::size_t at = begin; at > 0;) {
    const Character c = character_before(text, at);
    at -= c.length;
    if (is_case_ignorable(c.point)) continue;
    before = is_cased(c.point);
    break;
  }
  for (std::size_t at = end; before && at < text.size();) {
    const Character c = character_at(text, at);
    at += c.length;
    if (!is_case_ignorable(c.point)) return !is_cased(c.point);
  }
  return before;
}

std::string upper_of(char32_t c, bool title) {
  if (const SpecialCase* row = special_case(c)) return title ? row->title : row->upper;
  std::string text;
  append_character(text, char32_t(title ? utf8proc_totitle(utf8proc_int32_t(c)) : utf8proc_toupper(utf8proc_int32_t(c))));
  return text;
}

std::string lower_of(char32_t c, std::string_view text, std::size_t begin, std::size_t end) {
  if (c == 0x130) return "i\u0307";
  if (c == 0x3a3) return ends_word(text, begin, end) ? "\u03c2" : "\u03c3";
  std::string lower;
  append_character(lower, char32_t(utf8proc_tolower(utf8proc_int32_t(c))));
  return lower;
}

}  // namespace

bool is_python_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_line_end(char32_t c) { return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029; }

bool is_printable(char32_t c) {
  if (c < 0x7f) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_letter(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT || k == UTF8PROC_CATEGORY_LM ||
         k == UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_other_number(char32_t c) { return category(c) == UTF8PROC_CATEGORY_NO || category(c) == UTF8PROC_CATEGORY_NL; }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || is_other_upper(c); }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || is_other_lower(c); }

namespace {

// True if a character is in the case `of` and no character is in another case.
bool has_case_only(std::string_view text, bool (*of)(char32_t)) {
  bool found = false;
  for (std::size_t at = 0; at < text.size(); at += character_at(text, at).length) {
    const char32_t c = character_at(text, at).point;
    if (of(c)) found = true;
    else if (is_cased(c)) return false;
  }
  return found;
}

}  // namespace

bool is_upper_text(std::string_view text) { return has_case_only(text, is_upper); }
bool is_lower_text(std::string_view text) { return has_case_only(text, is_lower); }

std::size_t length_of(std::string_view text) {
  return std::size_t(std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::size_t byte_of(std::string_view text, std::size_t character) {
  std::size_t at = 0;
  for (; character > 0 && at < text.size(); --character) at += character_at(text, at).length;
  return at;
}

std::pair<std::size_t, std::size_t> stripped(std::string_view text) {
  std::size_t begin = 0, end = text.size();
  while (begin < end && is_python_space(character_at(text, begin).point)) begin += character_at(text, begin).length;
  while (end > begin && is_python_space(character_before(text, end).point)) end -= character_before(text, end).length;
  return {begin, end};
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

Text with_letters(const Text& text, Letters letters, Budget& budget) {
  budget.bytes(3 * text.memory());
  const std::string& bytes = text.bytes();
  Text out;
  bool begins = true;  // title, capitalized: the next cased character begins a word
  for (std::size_t at = 0; at < bytes.size();) {
    const Character c = character_at(bytes, at);
    const bool title = letters == Letters::title || letters == Letters::capitalized;
    if (letters == Letters::upper || (title && begins)) out.append_changed(upper_of(c.point, title), text, at);
    else out.append_changed(lower_of(c.point, bytes, at, at + c.length), text, at);
    begins = letters == Letters::title && !is_cased(c.point);
    at += c.length;
  }
  return out;
}

}  // namespace gyr::jinja
