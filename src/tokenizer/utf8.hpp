// SPDX-License-Identifier: BSD-3-Clause
// UTF-8, one character at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gyr {

// Length of the longest valid UTF-8 prefix of `text` (no overlong forms, no surrogates, nothing past U+10FFFF).
std::size_t valid_utf8_prefix(std::string_view text);

// Length of the longest prefix of `text` in which no byte begins a valid character.
std::size_t invalid_utf8_prefix(std::string_view text);

// Replaces each maximal incomplete character, and each byte that begins no character, by U+FFFD: the usual display of
// invalid UTF-8.
std::string lossy_utf8(std::string_view text);

struct Character {
  char32_t point;
  std::size_t length;  // length in bytes
};

// The character that begins at `at`. The text is valid UTF-8.
inline Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return char32_t(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const auto low = [&](std::size_t i) { return byte(i) & 0x3f; };
  if (lead < 0xe0) return {(lead & 0x1f) << 6 | low(1), 2};
  if (lead < 0xf0) return {(lead & 0x0f) << 12 | low(1) << 6 | low(2), 3};
  return {(lead & 0x07) << 18 | low(1) << 12 | low(2) << 6 | low(3), 4};
}

// The character that ends at `end` > 0.
inline Character character_before(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return character_at(text, at);
}

inline void append_character(std::string& text, char32_t point) {
  const auto tail = [&](int shift) { text += char(0x80 | (point >> shift & 0x3f)); };
  if (point < 0x80) {
    text += char(point);
  } else if (point < 0x800) {
    text += char(0xc0 | point >> 6);
    tail(0);
  } else if (point < 0x10000) {
    text += char(0xe0 | point >> 12);
    tail(6), tail(0);
  } else {
    text += char(0xf0 | point >> 18);
    tail(12), tail(6), tail(0);
  }
}

}  // namespace gyr
