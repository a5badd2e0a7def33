// SPDX-License-Identifier: BSD-3-Clause
// Character classes, by binary search in sorted tables.
#include "src/tokenizer/characters.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "src/tokenizer/character_tables.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {
namespace {

// The row of a sorted table whose range contains `c`, or null.
template <class Row, std::size_t N>
const Row* row_of(const Row (&table)[N], char32_t c) {
  const auto* row = std::upper_bound(std::begin(table), std::end(table), c, [](char32_t x, const Row& r) { return x < r.first; });
  return row != std::begin(table) && c <= std::prev(row)->last ? std::prev(row) : nullptr;
}

}  // namespace

bool is_white_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || c == ' ';
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_number(char32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : row_of(numbers, c) != nullptr; }

bool is_punctuation(char32_t c) {
  if (c < 0x80) return (c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') || (c > 'z' && c < 0x7f);
  return row_of(punctuation, c) != nullptr;
}

bool is_accent(char32_t c) { return c >= 0x300 && row_of(accents, c) != nullptr; }

bool is_unclean(char32_t c) { return c <= 1 || row_of(unclean, c) != nullptr; }
bool is_nonspacing(char32_t c) { return c >= 0x300 && row_of(nonspacing, c) != nullptr; }
bool is_han(char32_t c) { return c >= 0x3400 && row_of(han, c) != nullptr; }

void append_lowercase(std::string& text, char32_t c) {
  if (c == 0x130) {
    text += "i\u0307";
    return;
  }
  const LowercaseRange* row = row_of(lowercase_ranges, c);
  append_character(text, row && (c - row->first) % row->step == 0 ? char32_t(std::int64_t(c) + row->distance) : c);
}

bool is_inert(char32_t c) { return c >= 0x7fd && (row_of(inert, c) || row_of(stand_ins, c)); }

std::optional<char32_t> stand_in(char32_t c) {
  const StandIn* row = c < 0x800 ? nullptr : row_of(stand_ins, c);
  return row ? std::optional(row->old) : std::nullopt;
}

std::optional<std::string> with_stand_ins(std::string_view text) {
  // Lead bytes of characters that have a stand-in. All other bytes are skipped.
  static const auto begins_one = [] {
    std::array<bool, 256> leads{};
    for (const StandIn& row : stand_ins)
      for (char32_t c = row.first; c <= row.last; ++c) {
        std::string one;
        append_character(one, c);
        leads[static_cast<unsigned char>(one[0])] = true;
      }
    return leads;
  }();
  std::optional<std::string> copy;
  for (std::size_t i = 0; i < text.size();) {
    std::uint64_t eight;
    if (i + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + i, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        i += sizeof eight;
        continue;
      }
    }
    if (!begins_one[static_cast<unsigned char>(text[i])]) {
      ++i;
      continue;
    }
    const auto [c, length] = character_at(text, i);
    if (const auto old = stand_in(c)) {
      if (!copy) copy.emplace(text);
      std::string one;
      append_character(one, *old);
      copy->replace(i, length, one);
    }
    i += length;
  }
  return copy;
}

bool range_is_exact(char32_t first, char32_t last) {
  return std::all_of(std::begin(stand_ins), std::end(stand_ins), [&](const StandIn& row) {
    const bool inside = first <= row.first && row.last <= last, outside = row.last < first || last < row.first;
    const bool old_inside = first <= row.old && row.old <= last;
    return old_inside ? inside : outside;
  });
}

}  // namespace gyr
