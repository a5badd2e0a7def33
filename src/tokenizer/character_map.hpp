// SPDX-License-Identifier: BSD-3-Clause
// SentencePiece's character normalization before tokenization (`precompiled_charsmap`): a map from short byte sequences
// to replacements, stored in a double-array trie (Aoe 1989; layout of Darts-clone).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyr {

class CharacterMap {
 public:
  // Parses the binary map: the trie size in bytes (u32), the trie as 32-bit words, then the zero-terminated
  // replacements. Exit::data.
  explicit CharacterMap(std::string_view bytes);

  // Replaces grapheme clusters of up to five bytes, or else single characters, as `tokenizers` does. Input and output
  // are valid UTF-8.
  std::string apply(std::string_view text) const;

 private:
  // Replacement of the shortest prefix of `part` that is in the map; null if there is none.
  const char* replacement(std::string_view part) const;

  std::vector<std::uint32_t> trie_;
  std::string texts_;
};

// Decodes base64. Returns false if `text` is not valid base64.
bool from_base64(std::string_view text, std::string& bytes);

}  // namespace gyr
