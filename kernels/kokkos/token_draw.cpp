// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels of token sampling. kernels/ops/sampling/token_draw.hpp describes the method.
#include <limits>

#include "kernels/kokkos/rows.hpp"
#include "kernels/ops/sampling/token_draw_math.hpp"

namespace gyr {

// The bins of one draw: numbers of tokens, then weights.
struct DrawBins {
  double at[2 * draw_digits_of_round] = {};
  KOKKOS_INLINE_FUNCTION DrawBins& operator+=(const DrawBins& more) {
    for (int i = 0; i < 2 * draw_digits_of_round; ++i) at[i] += more.at[i];
    return *this;
  }
};

}  // namespace gyr

template <>
struct Kokkos::reduction_identity<gyr::DrawBins> {
  KOKKOS_FORCEINLINE_FUNCTION static gyr::DrawBins sum() { return {}; }
};

namespace gyr::backend {

template <class A>
void draw_bins(Device& dev, Tensor2<const A> logits, Index valid, Tensor1<const A> top, double temperature, int round, Tensor1<const TokenDraw> draws,
               Tensor2<double> bins) {
  const Index held = logits.extent(1), only = logits.extent(0) == 1 ? 0 : 1;
  for_teams(
      "draw_bins", dev, draws.extent(0), KOKKOS_LAMBDA(const Team& team, Index d) {
        const A* const l = logits.data() + d * only * held;
        const double most = double(top.data()[d * only]);
        const std::uint64_t digits = round == 0 ? 0 : draws.data()[d].digits;
        DrawBins sums;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, valid),
            [=](Index v, DrawBins& b) {
              const DrawKey<A> key(l[v]);
              if (key.digits(round) != digits || !key.finite()) return;
              const int digit = key.digit(round);
              b.at[digit] += 1;
              b.at[draw_digits_of_round + digit] += draw_weight(double(l[v]) - most, temperature);
            },
            sums);
        once(team, [&] {
          for (int i = 0; i < 2 * draw_digits_of_round; ++i) bins.data()[d * 2 * draw_digits_of_round + i] = sums.at[i];
        });
      });
}

template <class A>
void draw_digits(Device& dev, TokenSearch search, int round, const DrawRules& rules, Tensor2<const double> bins, Tensor1<TokenDraw> draws,
                 Tensor1<A> found) {
  for_flat(
      "draw_digits", dev, draws.extent(0), KOKKOS_LAMBDA(Index d) {
        const double* const b = bins.data() + d * 2 * draw_digits_of_round;
        TokenDraw& draw = draws.data()[d];
        choose_digit(draw, search, round, draw_rounds<A>, rules, [=](int i) { return b[i]; });
        found.data()[d] = DrawKey<A>::logit(draw.digits, round + 1);
      });
}

template <class A>
void gumbel_best(Device& dev, Tensor2<const A> logits, Index valid, Tensor1<const A> top, Index first, double temperature,
                 Tensor1<const TokenDraw> draws, Tensor2<double> best) {
  const Index held = logits.extent(1), only = logits.extent(0) == 1 ? 0 : 1;
  for_teams(
      "gumbel_best", dev, draws.extent(0), KOKKOS_LAMBDA(const Team& team, Index d) {
        using Best = Kokkos::MaxLoc<double, Index>;
        const A* const l = logits.data() + d * only * held;
        const TokenDraw& draw = draws.data()[d];
        typename Best::value_type most;
        most.val = std::numeric_limits<double>::lowest(), most.loc = -1;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, valid),
            [=](Index v, typename Best::value_type& m) {
              const double score = gumbel_score(double(l[v]), temperature, draw, first + v);
              if (score > m.val) m.val = score, m.loc = v;
            },
            Best(most));
        once(team, [&] {
          double* const to = best.data() + 3 * d;
          const bool found = valid > 0 && most.val > std::numeric_limits<double>::lowest();
          to[0] = found ? most.val : std::numeric_limits<double>::lowest();
          to[1] = found ? double(first + most.loc) : -1;
          to[2] = found ? (double(l[most.loc]) - double(top.data()[d * only])) / temperature : 0;
        });
      });
}

GYR_TOKEN_DRAW(double) GYR_TOKEN_DRAW(float)

}  // namespace gyr::backend
