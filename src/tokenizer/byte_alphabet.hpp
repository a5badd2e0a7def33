// SPDX-License-Identifier: BSD-3-Clause
// Byte alphabet of byte-level vocabularies: every byte has its own printable character, so that tokens can be written
// in JSON. Bytes 33..126, 161..172 and 174..255 are represented by themselves (as code points). The other 68 bytes, in
// rising order, are U+0100, U+0101, ... (Radford et al. 2019, GPT-2).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gyr {

constexpr bool stands_for_itself(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255); }

// letter_of[b]: the code point of byte b.
inline constexpr std::array<std::uint16_t, 256> letter_of = [] {
  std::array<std::uint16_t, 256> letters{};
  int next = 256;
  for (int b = 0; b < 256; ++b) letters[std::size_t(b)] = std::uint16_t(stands_for_itself(b) ? b : next++);
  return letters;
}();

// Spells `bytes` in the byte alphabet, as UTF-8. All letters are below U+0800, so each takes one or two bytes.
inline std::string to_letters(std::string_view bytes) {
  std::string letters;
  letters.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const unsigned point = letter_of[static_cast<unsigned char>(c)];
    if (point < 0x80) {
      letters += char(point);
    } else {
      letters += char(0xc0 | point >> 6);
      letters += char(0x80 | (point & 0x3f));
    }
  }
  return letters;
}

// Converts letters of the byte alphabet back to bytes. Empty if a character is not in the alphabet.
inline std::optional<std::string> from_letters(std::string_view letters) {
  static constexpr auto byte_of = [] {
    std::array<std::int16_t, 256 + 68> bytes{};
    bytes.fill(-1);
    for (int b = 0; b < 256; ++b) bytes[letter_of[std::size_t(b)]] = std::int16_t(b);
    return bytes;
  }();
  std::string bytes;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    unsigned point = static_cast<unsigned char>(letters[i]);
    if (point >= 0x80) {
      if ((point & 0xe0) != 0xc0 || i + 1 == letters.size()) return std::nullopt;
      const unsigned low = static_cast<unsigned char>(letters[++i]);
      if ((low & 0xc0) != 0x80) return std::nullopt;
      point = (point & 0x1f) << 6 | (low & 0x3f);
    }
    if (point >= byte_of.size() || byte_of[point] < 0) return std::nullopt;
    bytes += char(byte_of[point]);
  }
  return bytes;
}

// Bytes of a token in a byte-level vocabulary: those that its letters spell, or the spelling itself if it has
// characters outside the alphabet.
inline std::string bytes_of_spelling(std::string_view spelling) { return from_letters(spelling).value_or(std::string(spelling)); }

}  // namespace gyr
