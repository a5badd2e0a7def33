// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels of token sampling. kernels/ops/sampling/token_draw.hpp describes the method.
#include <limits>

#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/ops/sampling/token_draw_math.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

constexpr Index most_threads = 512;  // maximum number of threads per block; one block processes a draw

// The draws as a matrix of 8-byte words, which a thread loads and stores one by one.
constexpr int draw_words = sizeof(TokenDraw) / sizeof(double);
struct DrawWords {
  double at[draw_words];
};
template <class T>
Tensor2<double> words_of(const Tensor1<T>& draws) {
  return Tensor2<double>(reinterpret_cast<double*>(const_cast<TokenDraw*>(draws.data())), draws.extent(0), draw_words);
}
GYR_DEVICE TokenDraw load_draw(const Global<const double>& draws, Index d) {
  DrawWords words;
  for (int i = 0; i < draw_words; ++i) words.at[i] = draws.load(d, i);
  return __builtin_bit_cast(TokenDraw, words);
}
GYR_DEVICE void store_draw(const TokenDraw& draw, const Global<double>& draws, Index d) {
  const auto words = __builtin_bit_cast(DrawWords, draw);
  for (int i = 0; i < draw_words; ++i) draws.store(d, i, words.at[i]);
}

// Every thread has bins of its own in registers. They are added over the block in a fixed order.
template <class A, int N>
GYR_KERNEL draw_bins_kernel(Global<const A> logits, Index valid, Global<const A> top, double temperature, int round, Global<const double> draws,
                            Global<double> bins) {
  const Shared<double> storage;
  for (Index d = block_index(); d < draws.rows(); d += grid_blocks()) {
    const Index r = logits.rows() == 1 ? 0 : d;
    const double most = double(top.load(r));
    const std::uint64_t digits = round == 0 ? 0 : load_draw(draws, d).digits;
    double tokens[draw_digits_of_round] = {}, weights[draw_digits_of_round] = {};
    for (int c = N * thread_index(); c < int(valid); c += N * block_threads()) {
      const auto l = logits.template load_pack<N>(r, c);
      for (int i = 0; i < N; ++i) {
        const DrawKey<A> key(l.at[i]);
        if (c + i >= int(valid) || key.digits(round) != digits || !key.finite()) continue;
        const int digit = key.digit(round);
        const double weight = draw_weight(double(l.at[i]) - most, temperature);
        GYR_UNROLL
        for (int b = 0; b < draw_digits_of_round; ++b) tokens[b] += b == digit ? 1 : 0, weights[b] += b == digit ? weight : 0;
      }
    }
    GYR_UNROLL
    for (int b = 0; b < draw_digits_of_round; ++b) {
      const double count = block_sum(tokens[b], storage), weight = block_sum(weights[b], storage);
      if (thread_index() == 0) bins.store(d, b, count), bins.store(d, draw_digits_of_round + b, weight);
    }
  }
}

template <class A>
GYR_KERNEL draw_digits_kernel(TokenSearch search, int round, DrawRules rules, Global<const double> bins, Global<double> draws, Global<A> found) {
  const Index d = block_index() * block_threads() + thread_index();
  if (d >= draws.rows()) return;
  TokenDraw draw = load_draw(draws, d);
  choose_digit(draw, search, round, draw_rounds<A>, rules, [&](int i) { return bins.load(d, i); });
  store_draw(draw, draws, d);
  found.store(d, DrawKey<A>::logit(draw.digits, round + 1));
}

// Scores of later columns replace only smaller ones, and the lowest token of the block wins.
template <class A>
GYR_KERNEL gumbel_best_kernel(Global<const A> logits, Index valid, Global<const A> top, Index first, double temperature, Global<const double> draws,
                              Global<double> best) {
  const Shared<double> storage;
  constexpr double lowest = std::numeric_limits<double>::lowest();
  const auto larger = [](double a, double b) { return b > a ? b : a; };
  for (Index d = block_index(); d < draws.rows(); d += grid_blocks()) {
    const Index r = logits.rows() == 1 ? 0 : d;
    const TokenDraw draw = load_draw(draws, d);
    double mine = lowest;
    Index at = -1;
    for (int c = thread_index(); c < int(valid); c += block_threads())
      if (const double score = gumbel_score(double(logits.load(r, c)), temperature, draw, first + c); score > mine) mine = score, at = c;
    const double most = block_fold(warp_largest(mine), storage, larger);
    const double column = -block_fold(warp_largest(at >= 0 && mine == most ? -double(at) : lowest), storage, larger);
    if (thread_index() != 0) continue;
    const bool found = most > lowest;
    best.store(d, 0, most);
    best.store(d, 1, found ? double(first) + column : -1);
    best.store(d, 2, found ? (double(logits.load(r, Index(column))) - double(top.load(r))) / temperature : 0);
  }
}

}  // namespace

template <class A>
void draw_bins(Device& dev, Tensor2<const A> logits, Index valid, Tensor1<const A> top, double temperature, int round, Tensor1<const TokenDraw> draws,
               Tensor2<double> bins) {
  const Global<const A> in(logits);
  with_packs<A>(
      [&](auto n) {
        const int warps = int(std::clamp<Index>(ceil_div(valid, Index(n) * warp_size), 1, most_threads / warp_size));
        const Grid grid{std::min<Index>(draws.extent(0), most_blocks), warps * warp_size, warps * int(sizeof(double))};
        launch(dev, "draw_bins", grid, draw_bins_kernel<A, n>, in, valid, top, temperature, round, words_of(draws), bins);
      },
      in);
}

template <class A>
void draw_digits(Device& dev, TokenSearch search, int round, const DrawRules& rules, Tensor2<const double> bins, Tensor1<TokenDraw> draws,
                 Tensor1<A> found) {
  launch(dev, "draw_digits", {ceil_div(draws.extent(0), usual_threads), usual_threads}, draw_digits_kernel<A>, search, round, rules, bins,
         words_of(draws), found);
}

template <class A>
void gumbel_best(Device& dev, Tensor2<const A> logits, Index valid, Tensor1<const A> top, Index first, double temperature,
                 Tensor1<const TokenDraw> draws, Tensor2<double> best) {
  const int warps = int(std::clamp<Index>(ceil_div(valid, Index(warp_size)), 1, most_threads / warp_size));
  const Grid grid{std::min<Index>(draws.extent(0), most_blocks), warps * warp_size, warps * int(sizeof(double))};
  launch(dev, "gumbel_best", grid, gumbel_best_kernel<A>, logits, valid, top, first, temperature, words_of(draws), best);
}

GYR_TOKEN_DRAW(double) GYR_TOKEN_DRAW(float)

}  // namespace gyr::backend
