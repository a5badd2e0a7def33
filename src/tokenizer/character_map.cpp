// SPDX-License-Identifier: BSD-3-Clause
#include "src/tokenizer/character_map.hpp"

#include <utf8proc.h>

#include <cstring>

#include "kernels/base/error.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {

namespace {

constexpr std::size_t longest_cluster = 5;  // in bytes; longer grapheme clusters are not looked up

// Fields of a trie word: offset to its children, label (byte), flag that a sequence ends here, and value (index of the
// replacement).
std::uint32_t offset_of(std::uint32_t word) { return (word >> 10) << ((word & (1u << 9)) >> 6); }
std::uint32_t label_of(std::uint32_t word) { return word & ((1u << 31) | 0xffu); }
bool ends_in(std::uint32_t word) { return (word >> 8 & 1u) == 1; }
std::uint32_t value_of(std::uint32_t word) { return word & ~(1u << 31); }

int digit_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

CharacterMap::CharacterMap(std::string_view bytes) {
  std::uint32_t size = 0;
  require(bytes.size() >= sizeof size, Exit::data, "the precompiled character map has {} bytes, too few for its size field", bytes.size());
  std::memcpy(&size, bytes.data(), sizeof size);
  bytes.remove_prefix(sizeof size);
  require(size <= bytes.size() && size % sizeof(std::uint32_t) == 0 && size > 0, Exit::data,
          "the precompiled character map declares a trie of {} bytes; the size must be a positive multiple of 4 and at most {}", size, bytes.size());
  trie_.resize(size / sizeof(std::uint32_t));
  std::memcpy(trie_.data(), bytes.data(), size);
  texts_ = bytes.substr(size);
  require(valid_utf8_prefix(texts_) == texts_.size(), Exit::data, "the precompiled character map has replacements that are not UTF-8");
}

const char* CharacterMap::replacement(std::string_view part) const {
  std::uint32_t at = offset_of(trie_[0]);
  for (const char c : part) {
    const std::uint32_t byte = static_cast<unsigned char>(c);
    at ^= byte;
    if (byte == 0 || at >= trie_.size() || label_of(trie_[at]) != byte) return nullptr;
    const bool ends = ends_in(trie_[at]);
    at ^= offset_of(trie_[at]);
    if (at >= trie_.size()) return nullptr;
    if (!ends) continue;
    const std::uint32_t text = value_of(trie_[at]);
    return text < texts_.size() ? texts_.c_str() + text : nullptr;
  }
  return nullptr;
}

std::string CharacterMap::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  for (std::size_t begin = 0; begin < text.size();) {
    Character c = character_at(text, begin);
    std::size_t end = begin + c.length;
    utf8proc_int32_t state = 0;
    while (end < text.size()) {
      const Character next = character_at(text, end);
      if (utf8proc_grapheme_break_stateful(utf8proc_int32_t(c.point), utf8proc_int32_t(next.point), &state)) break;
      c = next, end += next.length;
    }
    const std::string_view cluster = text.substr(begin, end - begin);
    const char* const full = cluster.size() <= longest_cluster ? replacement(cluster) : nullptr;
    if (full) out += full;
    for (std::size_t at = begin; at < end && !full;) {
      const std::string_view one = text.substr(at, character_at(text, at).length);
      const char* const other = replacement(one);
      if (other) out += other;
      else out += one;
      at += one.size();
    }
    begin = end;
  }
  return out;
}

bool from_base64(std::string_view text, std::string& bytes) {
  bytes.clear();
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::uint32_t held = 0;
  int bits = 0;
  for (const char c : text) {
    const int digit = digit_of(c);
    if (digit < 0) return false;
    held = held << 6 | std::uint32_t(digit), bits += 6;
    if (bits >= 8) bits -= 8, bytes += char(held >> bits & 0xff);
  }
  return bits < 6;
}

}  // namespace gyr
