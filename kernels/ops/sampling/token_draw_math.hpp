// SPDX-License-Identifier: BSD-3-Clause
// Arithmetic of token_draw.hpp that both backends share.
#pragma once

#include <cmath>

#include "kernels/base/philox.hpp"
#include "kernels/ops/sampling/token_draw.hpp"

namespace gyr {

// Key of a logit: unsigned, smaller for a larger logit, equal for equal logits (also for 0 and -0).
template <class A>
class DrawKey {
  using Bits = std::conditional_t<sizeof(A) == 4, std::uint32_t, std::uint64_t>;
  static constexpr int bits = int(sizeof(A)) * 8;
  static constexpr Bits sign = Bits(1) << (bits - 1), infinity = sizeof(A) == 4 ? Bits(0x7f800000) : Bits(0x7ff0000000000000);

 public:
  GYR_FUNCTION explicit DrawKey(A logit) : bits_(__builtin_bit_cast(Bits, logit)) {
    if ((bits_ & ~sign) == 0) bits_ = 0;
    finite_ = (bits_ & infinity) != infinity;
    key_ = bits_ & sign ? bits_ : ~bits_ & ~sign;
  }
  GYR_FUNCTION bool finite() const { return finite_; }
  // Digit of a round, and all digits of the rounds before it.
  GYR_FUNCTION int digit(int round) const { return int(key_ >> (bits - (round + 1) * draw_digit_bits)) & (draw_digits_of_round - 1); }
  GYR_FUNCTION std::uint64_t digits(int round) const { return round == 0 ? 0 : key_ >> (bits - round * draw_digit_bits); }
  // The logit whose first digits are given and whose other digits are 0.
  static GYR_FUNCTION A logit(std::uint64_t digits, int rounds) {
    const Bits key = Bits(digits) << (bits - rounds * draw_digit_bits);
    return __builtin_bit_cast(A, key & sign ? key : ~key & ~sign);
  }

 private:
  Bits bits_, key_;
  bool finite_;
};

GYR_FUNCTION double draw_weight(double below, double temperature) { return std::exp(below / temperature); }

GYR_FUNCTION double gumbel_score(double logit, double temperature, const TokenDraw& d, Index token) {
  const auto low = [](std::uint64_t x) { return std::uint32_t(x); };
  const auto high = [](std::uint64_t x) { return std::uint32_t(x >> 32); };
  const PhiloxWords w = philox({{std::uint32_t(token), std::uint32_t(d.position), low(d.stream), high(d.stream)}}, {{low(d.seed), high(d.seed)}});
  const std::uint64_t bits = (std::uint64_t(w.at[0]) << 32 | w.at[1]) >> 11;  // as Stream::uniform
  const double u = bits > 0 ? double(bits) * 0x1p-53 : 0x1p-54;
  return logit / temperature - std::log(-std::log(u));
}

// Bound of the rounding of sums of weights, here and in sums over a sorted row.
GYR_FUNCTION double draw_margin(const TokenDraw& d, const DrawRules& r) { return d.all * double(r.vocab_size + 8) * 0x1p-51; }

GYR_FUNCTION double draw_limit(const TokenDraw& d, TokenSearch search, const DrawRules& r) {
  return search == TokenSearch::top_k ? double(r.top_k) : d.kept * (search == TokenSearch::top_p ? r.top_p : d.uniform);
}

// Checks the found token, and updates what the searches keep.
GYR_FUNCTION void end_search(TokenDraw& d, TokenSearch search, const DrawRules& r) {
  const double limit = draw_limit(d, search, r), margin = draw_margin(d, r), end = d.before + d.weight, tokens = d.tokens_before + d.tokens;
  bool certain = tokens <= d.kept_tokens;
  if (search == TokenSearch::top_k) certain = certain && tokens == limit;
  else certain = certain && d.tokens == 1 && (d.tokens_before == 0 || d.before < limit - margin);
  if (search == TokenSearch::top_p || (search == TokenSearch::token && tokens < d.kept_tokens)) certain = certain && end > limit + margin;
  if (!certain) d.uncertain = 1;
  if (search != TokenSearch::token) d.kept = end, d.kept_tokens = tokens;
}

// bin(i): element i of the draw's bins.
template <class Bin>
GYR_FUNCTION void choose_digit(TokenDraw& d, TokenSearch search, int round, int rounds, const DrawRules& r, const Bin& bin) {
  int last = 0;
  double all = 0, tokens = 0;
  for (int i = 0; i < draw_digits_of_round; ++i) {
    if (bin(i) > 0) last = i;
    tokens += bin(i), all += bin(draw_digits_of_round + i);
  }
  if (round == 0) {
    if (d.kept < 0) d.all = d.kept = all, d.finite = d.kept_tokens = tokens;
    d.before = d.tokens_before = 0, d.digits = 0;
  }
  const double limit = draw_limit(d, search, r);
  int chosen = 0;
  for (; chosen < last; ++chosen) {
    const double count = d.tokens_before + bin(chosen), weight = d.before + bin(draw_digits_of_round + chosen);
    if (bin(chosen) > 0 && (search == TokenSearch::top_k ? count >= limit : search == TokenSearch::top_p ? weight >= limit : weight > limit)) break;
    d.tokens_before = count, d.before = weight;
  }
  d.digits = d.digits * draw_digits_of_round + std::uint64_t(chosen);
  d.tokens = bin(chosen), d.weight = bin(draw_digits_of_round + chosen);
  if (round + 1 == rounds) end_search(d, search, r);
}

}  // namespace gyr
