// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/string_literal.hpp"

#include <fmt/format.h>

#include "src/tokenizer/utf8.hpp"

namespace gyr::jinja {

namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 16;
}

// Reads exactly `digits` hexadecimal digits, or up to three octal ones.
std::optional<char32_t> code_point(std::string_view text, std::size_t& at, std::size_t digits, int base) {
  char32_t point = 0;
  std::size_t n = 0;
  for (; n < digits && at < text.size() && digit_value(text[at]) < base; ++n, ++at) point = point * char32_t(base) + char32_t(digit_value(text[at]));
  return base == 16 && n < digits ? std::nullopt : std::optional(point);
}

// The letter of an escape that stands for one character, or 0.
char single(char letter) {
  switch (letter) {
    case 'n': return '\n';
    case 't': return '\t';
    case 'r': return '\r';
    case 'a': return '\a';
    case 'b': return '\b';
    case 'f': return '\f';
    case 'v': return '\v';
    case '\\':
    case '\'':
    case '"': return letter;
    default: return 0;
  }
}

}  // namespace

std::optional<std::string> unescaped(std::string_view quoted, std::string& error) {
  std::string text;
  for (std::size_t at = 0; at < quoted.size();) {
    if (quoted[at] != '\\') {
      text += quoted[at++];
      continue;
    }
    const char letter = quoted[++at];
    if (const char c = single(letter)) {
      text += c, ++at;
    } else if (letter == '\n') {
      ++at;
    } else if (letter == 'x' || letter == 'u' || letter == 'U' || (letter >= '0' && letter <= '7')) {
      const bool octal = letter <= '7';
      at += octal ? 0 : 1;
      const auto point = octal ? code_point(quoted, at, 3, 8) : code_point(quoted, at, letter == 'x' ? 2 : letter == 'u' ? 4 : 8, 16);
      if (!point || *point > 0x10ffff || (*point >= 0xd800 && *point < 0xe000)) {
        error = fmt::format("a string has the escape \\{} without a valid character code", letter);
        return std::nullopt;
      }
      append_character(text, *point);
    } else if (letter == 'N') {
      error = "a string has the escape \\N, which is not supported; write the character itself";
      return std::nullopt;
    } else if (static_cast<unsigned char>(letter) >= 0x80) {  // Jinja spells the character by its code, and the backslash escapes that of the code
      const Character c = character_at(quoted, at);
      const auto code = unsigned(c.point);
      text += code < 0x100 ? fmt::format("\\x{:02x}", code) : code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
      at += c.length;
    } else {
      text += '\\';
    }
  }
  return text;
}

}  // namespace gyr::jinja
