// SPDX-License-Identifier: BSD-3-Clause
#include "src/tokenizer/initial_symbols.hpp"

#include <algorithm>
#include <string>

#include "kernels/base/error.hpp"
#include "src/tokenizer/byte_alphabet.hpp"
#include "src/tokenizer/tokenizer.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {

InitialSymbols::InitialSymbols(const Vocabulary& vocabulary, const Ids& ids)
    : ids_(ids), of_text_(vocabulary.of_text), fuse_unknown_(vocabulary.fuse_unknown), unknown_(vocabulary.unknown) {
  fallback_.fill(-1);
  for (std::size_t byte = 0; byte < 256 && vocabulary.byte_fallback; ++byte)
    if (const auto token = ids.find(fmt::format("<0x{:02X}>", byte)); token != ids.end()) fallback_[byte] = token->second;
  for (std::size_t byte = 0; byte < 256; ++byte) of_byte_[byte] = computed(std::string(1, char(byte)));
}

InitialSymbols::Symbols InitialSymbols::computed(std::string_view unit) const {
  if (const auto token = ids_.find(unit); token != ids_.end()) return {{token->second}, 1, true};
  const auto substitutes = [&](std::string_view bytes) {
    Symbols symbols;
    for (const char c : bytes) {
      const std::int32_t id = fallback_[static_cast<unsigned char>(c)];
      if (id < 0) return Symbols();
      symbols.ids[std::size_t(symbols.count++)] = id;
    }
    return symbols;
  };
  // In a byte-level vocabulary, the fallback tokens spell the letter of the byte.
  return of_text_ ? substitutes(unit) : substitutes(to_letters(unit));
}

// The order is that of `tokenizers`: an unknown token is appended only before the next unit that has its own token, or
// at the end. It therefore follows any byte-fallback tokens in between.
void InitialSymbols::append(std::string_view piece, std::vector<std::int32_t>& symbols) const {
  const bool of_characters = of_text_ && valid_utf8_prefix(piece.substr(0, 4)) > 0;
  bool waiting = false;  // an unknown token is due
  for (std::size_t at = 0, length = 1; at < piece.size(); at += length) {
    if (of_characters) length = character_at(piece, at).length;
    const Symbols s = of(piece.substr(at, length));
    if (s.count == 0 && unknown_) {
      if (waiting && !fuse_unknown_) symbols.push_back(*unknown_);
      waiting = true;
      continue;
    }
    if (waiting && s.own_token) {
      symbols.push_back(*unknown_);
      waiting = false;
    }
    symbols.insert(symbols.end(), s.ids.begin(), s.ids.begin() + s.count);
  }
  if (waiting) symbols.push_back(*unknown_);
}

int InitialSymbols::lacking() const {
  return int(std::count_if(of_byte_.begin(), of_byte_.end(), [](const Symbols& s) { return !s.own_token; }));
}

bool InitialSymbols::all_bytes() const { return std::ranges::find(fallback_, -1) == fallback_.end(); }

bool InitialSymbols::is_substitute(std::int32_t id) const { return id == unknown_ || std::ranges::find(fallback_, id) != fallback_.end(); }

}  // namespace gyr
