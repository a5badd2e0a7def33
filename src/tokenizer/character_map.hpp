// SPDX-License-Identifier: BSD-3-Clause
// What SentencePiece makes of characters before it cuts (its "precompiled character map"): short sequences of bytes and what is put in their place,
// in a double-array trie (Aoe 1989; the layout of Darts-clone).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyr {

class CharacterMap {
 public:
  // A count of bytes, so many of the trie in words of 32 bits, then the replacements, each with a zero byte behind it. Exit::data.
  explicit CharacterMap(std::string_view bytes);

  // Replaces grapheme clusters of up to five bytes as a whole, or else character by character, as `tokenizers` does. Valid UTF-8, and stays so.
  std::string apply(std::string_view text) const;

 private:
  // What stands for the shortest known sequence that `part` begins with; null: none is known.
  const char* replacement(std::string_view part) const;

  std::vector<std::uint32_t> trie_;
  std::string texts_;
};

// Text of base64 as bytes; false where it is none.
bool from_base64(std::string_view text, std::string& bytes);

}  // namespace gyr
