// SPDX-License-Identifier: BSD-3-Clause
// Token sampling from logits sharded by vocabulary: no rank and no host holds a full row of logits.
//
// The tokens of a row are ordered by their logits, most likely first, with weights w_v = exp((l_v - max l) / temperature).
// A draw is a sequence of searches for the token at which a running sum in this order reaches a limit:
//   top_k   the number of tokens reaches top_k;   kept = weight of the tokens up to there (all of them without top_k)
//   top_p   the weight reaches top_p * kept;      kept = weight up to there
//   token   the weight exceeds uniform * kept: the drawn token
// A search finds the bits of that token's logit from the highest to the lowest (radix select), one digit of 4 bits per
// round. draw_bins counts and weighs this rank's tokens by their next digit, an all-reduce adds the bins of the ranks, and
// draw_digits chooses the digit.
//
// A draw is uncertain if a limit is so close to the border of a token that rounding could decide, or if several tokens
// have the logit that was found. The caller repeats it with a full row. All other draws are those of exact arithmetic,
// so that they do not depend on the sharding, on the order of sums or on the device.
#pragma once

#include "kernels/ops/elementwise.hpp"

namespace gyr {

// State of a draw, in device memory. The caller sets `uniform`.
struct TokenDraw {
  double uniform = 0;                    // random number in [0, 1)
  double kept = -1, kept_tokens = 0;     // weight and number of the tokens that the searches so far keep; -1: none has begun
  double all = 0, finite = 0;            // weight of the row's tokens, and number of its finite logits
  double before = 0, tokens_before = 0;  // weight and number of the tokens before those with the digits found so far
  double weight = 0, tokens = 0;         // weight and number of the tokens with the digits found so far
  double uncertain = 0;                  // 1: the draw must be repeated with a full row
  std::uint64_t digits = 0;              // digits found so far
  // Gumbel draws, set by the caller: seed and hash of the name of a random stream (random.hpp), and position of the token.
  std::uint64_t seed = 0, stream = 0;
  std::int64_t position = 0;
};

enum class TokenSearch { top_k, top_p, token };

struct DrawRules {
  double temperature = 1;  // above 0
  Index top_k = 0;
  double top_p = 1;
  Index vocab_size = 0;
};

inline constexpr int draw_digit_bits = 4, draw_digits_of_round = 1 << draw_digit_bits;
// Number of rounds of a search over logits of type A.
template <class A>
constexpr int draw_rounds = int(sizeof(A)) * 8 / draw_digit_bits;

// bins(d, i) and bins(d, 16 + i): number and weight of the valid columns whose digit of this round is i and whose higher
// digits are those of draw d. Logits that are not finite count in no bin. Draw d belongs to row d, or to the only row.
template <class A>
void draw_bins(Device&, Tensor2<const A> logits /*(R,V)*/, Index valid, Tensor1<const A> top /*(R)*/, double temperature, int round,
               Tensor1<const TokenDraw> draws /*(D)*/, Tensor2<double> bins /*(D,32)*/);

// Chooses the digit of this round from the bins of all ranks. found(d): the logit with the digits so far; after the last
// round that of the token that the search found.
template <class A>
void draw_digits(Device&, TokenSearch, int round, const DrawRules&, Tensor2<const double> bins /*(D,32)*/, Tensor1<TokenDraw> draws /*(D)*/,
                 Tensor1<A> found /*(D)*/);

// Gumbel-max draws (Gumbel 1954) from softmax(l / temperature): the token with the largest score
//   l_v / temperature - ln(-ln u_v),   u_v = number position 2^32 + v of the draw's stream, or 2^-54 if that is 0
// best(d, 0), best(d, 1): largest score of this rank's columns, of which the first has token `first`, and its token; the
// lowest double and -1 without columns. best(d, 2) = ln w_v of that token.
template <class A>
void gumbel_best(Device&, Tensor2<const A> logits /*(R,V)*/, Index valid, Tensor1<const A> top /*(R)*/, Index first, double temperature,
                 Tensor1<const TokenDraw> draws /*(D)*/, Tensor2<double> best /*(D,3)*/);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class A>
void draw_bins(Device&, Tensor2<const A> logits, Index valid, Tensor1<const A> top, double temperature, int round, Tensor1<const TokenDraw> draws,
               Tensor2<double> bins);
template <class A>
void draw_digits(Device&, TokenSearch, int round, const DrawRules&, Tensor2<const double> bins, Tensor1<TokenDraw> draws, Tensor1<A> found);
template <class A>
void gumbel_best(Device&, Tensor2<const A> logits, Index valid, Tensor1<const A> top, Index first, double temperature, Tensor1<const TokenDraw> draws,
                 Tensor2<double> best);

}  // namespace backend

#define GYR_TOKEN_DRAW(A)                                                                                                                 \
  template void draw_bins<A>(Device&, Tensor2<const A>, Index, Tensor1<const A>, double, int, Tensor1<const TokenDraw>, Tensor2<double>); \
  template void draw_digits<A>(Device&, TokenSearch, int, const DrawRules&, Tensor2<const double>, Tensor1<TokenDraw>, Tensor1<A>);       \
  template void gumbel_best<A>(Device&, Tensor2<const A>, Index, Tensor1<const A>, Index, double, Tensor1<const TokenDraw>, Tensor2<double>);

}  // namespace gyr
