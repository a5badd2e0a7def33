// SPDX-License-Identifier: BSD-3-Clause
#include "src/tokenizer/unigram.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "kernels/base/error.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {

namespace {

constexpr double unknown_costs = 10;  // difference between the smallest token score and the unknown score, as in `tokenizers`

// Rounds a score as `tokenizers` does when it parses JSON: the digits as an integer, divided by or multiplied with a
// power of ten. The last bit decides between segmentations with almost equal scores.
double as_read(double score) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), score, std::chars_format::scientific);
  ensure(error == std::errc(), "{} has no text", score);
  std::uint64_t digits = 0;
  int exponent = 0;
  bool after_point = false;
  const char* at = text.data();
  for (; at != end && *at != 'e'; ++at) {
    if (*at == '.') after_point = true;
    if (*at < '0' || *at > '9') continue;
    digits = 10 * digits + std::uint64_t(*at - '0');
    exponent -= after_point;
  }
  int power = 0;
  std::from_chars(at + (at[1] == '+' ? 2 : 1), end, power);
  exponent += power;
  const double mantissa = double(digits), scale = std::pow(10.0, std::abs(exponent));
  return std::copysign(exponent < 0 ? mantissa / scale : mantissa * scale, score);
}

// Best segmentation of the piece up to a byte: its last part and its total score.
struct Best {
  std::size_t begin = std::string_view::npos;  // start of the last part; npos: no segmentation ends here
  std::int32_t id = -1;
  double score = 0;
};

}  // namespace

Unigram::Unigram(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  double least = std::numeric_limits<double>::infinity();
  for (Token& token : tokens_) token.score = as_read(token.score);
  for (const Token& token : tokens_) least = std::min(least, token.score);
  unknown_ = least - unknown_costs;
  std::sort(tokens_.begin(), tokens_.end(), [](const Token& a, const Token& b) { return a.spelling < b.spelling; });
}

void Unigram::split_piece(std::string_view piece, std::vector<Part>& parts) const {
  parts.clear();
  std::vector<Best> best(piece.size() + 1);
  const auto offer = [&](std::size_t end, const Best& way) {
    if (best[end].begin == std::string_view::npos || way.score > best[end].score) best[end] = way;
  };
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t one = character_at(piece, at).length;
    bool single = false;
    // Tokens with the same prefix are contiguous, shortest first. Each step narrows the range by one byte.
    auto first = tokens_.begin(), last = tokens_.end();
    for (std::size_t length = 1; at + length <= piece.size() && first != last; ++length) {
      const auto byte = [&](const Token& t) { return static_cast<unsigned char>(t.spelling[length - 1]); };
      const unsigned char wanted = static_cast<unsigned char>(piece[at + length - 1]);
      first = std::partition_point(first, last, [&](const Token& t) { return t.spelling.size() < length || byte(t) < wanted; });
      last = std::partition_point(first, last, [&](const Token& t) { return byte(t) == wanted; });
      if (first == last || first->spelling.size() != length) continue;
      offer(at + length, {at, first->id, best[at].score + first->score});
      single = single || length == one;
    }
    if (!single) offer(at + one, {at, -1, best[at].score + unknown_});
    at += one;
  }
  for (std::size_t end = piece.size(); end > 0; end = best[end].begin) {
    if (best[end].id < 0 && !parts.empty() && parts.back().id < 0) parts.back().begin = best[end].begin;
    else parts.push_back({best[end].begin, end, best[end].id});
  }
  std::reverse(parts.begin(), parts.end());
}

}  // namespace gyr
