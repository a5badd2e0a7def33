// SPDX-License-Identifier: BSD-3-Clause
// Initial symbols of BPE: the tokens of a piece before merging. A piece consists of units, which are bytes in
// byte-level vocabularies and characters otherwise. A unit becomes its own token, or else the byte-fallback tokens of
// its bytes ("<0xC4>", ...), or else the unknown token.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace gyr {

struct Vocabulary;

class InitialSymbols {
 public:
  using Ids = std::unordered_map<std::string_view, std::int32_t>;

  // `ids`: id of each token of the model, by its bytes. The caller keeps it alive.
  InitialSymbols(const Vocabulary& vocabulary, const Ids& ids);

  // Appends the symbols of a piece, which is valid UTF-8 or contains no valid character.
  void append(std::string_view piece, std::vector<std::int32_t>& symbols) const;

  // Number of bytes (of 256) without their own token.
  int lacking() const;
  bool has_token(std::string_view unit) const { return ids_.contains(unit); }
  // True if every byte has a fallback token, so that no character is unknown.
  bool all_bytes() const;
  // True if `id` is a fallback token or the unknown token.
  bool is_substitute(std::int32_t id) const;

 private:
  // Symbols of a unit. If `count` is 0, the unit is unknown.
  struct Symbols {
    std::array<std::int32_t, 4> ids;
    std::int8_t count = 0;
    bool own_token = false;  // true: the unit's own token; false: substitutes
  };
  Symbols computed(std::string_view unit) const;
  Symbols of(std::string_view unit) const { return unit.size() == 1 ? of_byte_[static_cast<unsigned char>(unit[0])] : computed(unit); }

  const Ids& ids_;
  bool of_text_, fuse_unknown_;
  std::optional<std::int32_t> unknown_;
  std::array<std::int32_t, 256> fallback_;  // id of the fallback token of each byte, or -1
  std::array<Symbols, 256> of_byte_;        // units of one byte
};

}  // namespace gyr
