// SPDX-License-Identifier: BSD-3-Clause
// UTF-8 validation according to Table 3-7 of the Unicode standard.
#include "src/tokenizer/utf8.hpp"

#include <cstdint>
#include <cstring>

namespace gyr {
namespace {

struct Beginning {
  std::size_t length;  // bytes of the character, or of the invalid sequence
  bool complete;       // true if it is a valid character
};

// Classifies the start of `s`: a character, an incomplete character, or a byte that begins none.
Beginning beginning_of(std::string_view s) {
  const auto byte = [&](std::size_t i) { return i < s.size() ? unsigned(static_cast<unsigned char>(s[i])) : 0u; };
  const auto within = [&](std::size_t i, unsigned low, unsigned high) { return byte(i) >= low && byte(i) <= high; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {1, !s.empty()};
  const std::size_t size = lead >= 0xc2 && lead <= 0xdf ? 2 : lead >= 0xe0 && lead <= 0xef ? 3 : lead >= 0xf0 && lead <= 0xf4 ? 4 : 1;
  if (size == 1) return {1, false};
  const unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80, high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  if (!within(1, low, high)) return {1, false};
  for (std::size_t i = 2; i < size; ++i)
    if (!within(i, 0x80, 0xbf)) return {i, false};
  return {size, true};
}

}  // namespace

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    std::uint64_t eight;
    if (i + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + i, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        i += sizeof eight;
        continue;
      }
    }
    const auto [length, complete] = beginning_of(text.substr(i, 4));
    if (!complete) break;
    i += length;
  }
  return i;
}

std::size_t invalid_utf8_prefix(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size() && !beginning_of(text.substr(i, 4)).complete) ++i;
  return i;
}

std::string lossy_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += "\xef\xbf\xbd";
    text.remove_prefix(beginning_of(text.substr(0, 4)).length);
  }
  return out;
}

}  // namespace gyr
