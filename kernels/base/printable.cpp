// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/base/printable.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gyr {

namespace {

struct Character {
  char32_t point = 0;
  std::size_t bytes = 0;  // length of the character in bytes; 0: the text does not begin with a valid UTF-8 character
};

Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return char32_t(static_cast<unsigned char>(text[i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
  if (bytes == 0 || text.size() < bytes) return {};
  char32_t point = lead & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    point = point << 6 | (byte(i) & 0x3f);
  }
  const bool overlong = point < (bytes == 3 ? 0x800u : bytes == 4 ? 0x10000u : 0x80u);
  const bool surrogate = point >= 0xd800 && point < 0xe000;
  return overlong || surrogate || point > 0x10ffff ? Character() : Character{point, bytes};
}

// True for C0 and C1 control characters, line and paragraph separators, and characters that change the writing
// direction or are invisible.
bool moves(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || (c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = first_character(text.substr(at, 4));
    if (c.bytes == 0 || (c.bytes == 1 && moves(c.point))) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
    else if (moves(c.point)) out += fmt::format("\\u{:04x}", unsigned(c.point));
    else out += text.substr(at, c.bytes);
    at += c.bytes == 0 ? 1 : c.bytes;
  }
  return out;
}

namespace {

// Leaves out the middle of a UTF-8 text, except `head` bytes at its start and `tail` at its end.
std::string without_middle(std::string_view text, std::size_t head, std::size_t tail) {
  const auto continues = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; };
  std::size_t rest = text.size() - tail;
  while (head > 0 && continues(head)) --head;
  while (rest < text.size() && continues(rest)) ++rest;
  return fmt::format("{}...{}", text.substr(0, head), text.substr(rest));
}

std::string shortened(std::string_view line) {
  constexpr std::size_t most_of_word = 160, most_of_line = 4000;
  std::string out;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    out += word.size() <= most_of_word || word.find('/') != word.npos ? std::string(word) : without_middle(word, 80, 20);
    if (end < line.size()) out += ' ';
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return out.size() <= most_of_line ? out : without_middle(out, 2400, 1500);
}

}  // namespace

std::string printable_line(std::string_view text) { return shortened(printable(text)); }

std::string printable_lines(std::string_view text) {
  std::string out;
  for (;;) {
    const auto end = text.find('\n');
    out += printable_line(text.substr(0, end));
    if (end == text.npos || end + 1 == text.size()) return out;
    out += "\n  ";
    text.remove_prefix(end + 1);
  }
}

}  // namespace gyr
