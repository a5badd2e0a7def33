// SPDX-License-Identifier: BSD-3-Clause
// Unicode normal forms by utf8proc, applied between the characters that `tokenizers` leaves unchanged. All other steps
// are implemented here.
#include "src/tokenizer/normalizer.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "kernels/base/error.hpp"
#include "src/tokenizer/characters.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {
namespace {

using NormalizerKind = NormalizerStep::Kind;

// Compatibility forms make a text at most 11 times as long. The limit of 64 stops replacements that double the text
// again and again.
void check_growth(std::size_t from, std::size_t to) {
  require(to <= 64 * from + (1 << 16), Exit::data, "the normalizer of the tokenizer makes {} bytes of text more than 64 times as long", from);
}

// Sorts combining marks into canonical order: a stable sort of each run by combining class. (utf8proc's own sort is
// quadratic in the run length.)
void order_marks(std::vector<utf8proc_int32_t>& points) {
  const auto class_of = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (auto i = points.begin(); i != points.end();) {
    const auto end = std::find_if(i, points.end(), [&](auto c) { return class_of(c) == 0; });
    std::stable_sort(i, end, [&](auto a, auto b) { return class_of(a) < class_of(b); });
    i = end == points.end() ? end : end + 1;
  }
}

// Appends the normal form of `text`, which must not contain inert characters.
void append_normal(std::string& out, std::string_view text, NormalizerKind kind) {
  const bool compose = kind == NormalizerKind::nfc || kind == NormalizerKind::nfkc,
             compatible = kind == NormalizerKind::nfkc || kind == NormalizerKind::nfkd;
  const int form = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (compatible ? UTF8PROC_COMPAT : 0);
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const auto [c, length] = character_at(text, i);
    std::array<utf8proc_int32_t, 32> parts;  // the longest decomposition has 18 code points
    int boundary = 0;
    const auto count = utf8proc_decompose_char(utf8proc_int32_t(c), parts.data(), parts.size(), utf8proc_option_t(form), &boundary);
    ensure(count >= 0 && count <= utf8proc_ssize_t(parts.size()), "utf8proc decomposes U+{:04X} into {} characters", unsigned(c), count);
    points.insert(points.end(), parts.begin(), parts.begin() + count);
    i += length;
  }
  order_marks(points);
  auto size = utf8proc_ssize_t(points.size());
  if (compose) size = utf8proc_normalize_utf32(points.data(), size, utf8proc_option_t(form));
  for (utf8proc_ssize_t i = 0; i < size; ++i) append_character(out, char32_t(points[std::size_t(i)]));
}

// Normalizes `text` in segments between spaces, newlines and inert characters, which do not combine with others.
// Segments of pure ASCII are copied.
std::string normal(std::string_view text, NormalizerKind kind) {
  std::string out;
  out.reserve(text.size());
  std::size_t kept = 0;  // the text before this index is already in `out`
  bool plain = true;     // true while the segment has been pure ASCII
  const auto flush = [&](std::size_t end) {
    if (plain) {
      out += text.substr(kept, end - kept);
    } else {
      append_normal(out, text.substr(kept, end - kept), kind);
    }
    kept = end;
    plain = true;
  };
  for (std::size_t i = 0; i < text.size();) {
    const auto [c, length] = character_at(text, i);
    if (c == ' ' || c == '\n' || is_inert(c)) {
      flush(i);
      out += text.substr(i, length);
      kept = i + length;
    } else {
      plain &= c < 0x80;
    }
    i += length;
  }
  flush(text.size());
  return out;
}

template <class Append>
std::string by_characters(std::string_view text, Append&& append) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const auto [c, length] = character_at(text, i);
    append(out, c);
    i += length;
  }
  return out;
}

// Removes control characters and replaces white space by spaces (clean_text of BertNormalizer).
void append_clean(std::string& out, char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r' || (is_white_space(c) && !is_unclean(c))) out += ' ';
  else if (!is_unclean(c)) append_character(out, c);
}

void append_parted(std::string& out, char32_t c) {
  if (!is_han(c)) return append_character(out, c);
  out += ' ';
  append_character(out, c);
  out += ' ';
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty() && is_white_space(character_at(text, 0).point)) text.remove_prefix(character_at(text, 0).length);
  while (right && !text.empty() && is_white_space(character_before(text, text.size()).point))
    text.remove_suffix(character_before(text, text.size()).length);
  return text;
}

}  // namespace

std::string replaced(std::string_view text, const Pattern& pattern, std::string_view by, Pattern::Scratch& scratch) {
  if (text.empty()) return {};
  const auto older = with_stand_ins(text);
  std::string out;
  out.reserve(text.size());
  pattern.visit(older ? *older : text, scratch, [&](std::size_t begin, std::size_t end, bool matches) {
    out += matches ? by : text.substr(begin, end - begin);
    check_growth(text.size(), out.size());
  });
  return out;
}

Normalizer::Normalizer(const std::vector<NormalizerStep>& steps) {
  for (const NormalizerStep& step : steps) {
    steps_.push_back({step, std::nullopt, std::nullopt});
    if (step.kind == NormalizerKind::replace) steps_.back().pattern.emplace(step.pattern, step.pattern);
    if (step.kind == NormalizerKind::map) steps_.back().map.emplace(step.text);
  }
}

void Normalizer::apply(std::string& text, Pattern::Scratch& scratch, bool prefix) const {
  const std::size_t size = text.size();
  for (const Step& step : steps_) {
    const NormalizerStep& what = step.what;
    switch (what.kind) {
      case NormalizerKind::nfc:
      case NormalizerKind::nfd:
      case NormalizerKind::nfkc:
      case NormalizerKind::nfkd: text = normal(text, what.kind); break;
      case NormalizerKind::lowercase: text = by_characters(text, append_lowercase); break;
      case NormalizerKind::strip_accents:
        text = by_characters(text, [](std::string& out, char32_t c) {
          if (!is_accent(c)) append_character(out, c);
        });
        break;
      case NormalizerKind::clean: text = by_characters(text, append_clean); break;
      case NormalizerKind::surround_han: text = by_characters(text, append_parted); break;
      case NormalizerKind::strip_nonspacing:
        text = by_characters(text, [](std::string& out, char32_t c) {
          if (!is_nonspacing(c)) append_character(out, c);
        });
        break;
      case NormalizerKind::strip: text = std::string(stripped(text, what.left, what.right)); break;
      case NormalizerKind::prepend:
        if (prefix && !text.empty()) text.insert(0, what.text);
        break;
      case NormalizerKind::map: text = step.map->apply(text); break;
      case NormalizerKind::replace: text = replaced(text, *step.pattern, what.text, scratch); break;
    }
    check_growth(size, text.size());
  }
}

}  // namespace gyr
