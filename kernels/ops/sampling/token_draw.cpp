// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/sampling/token_draw.hpp"

namespace gyr {

template <class A>
void draw_bins(Device& dev, Tensor2<const A> logits, Index valid, Tensor1<const A> top, double temperature, int round, Tensor1<const TokenDraw> draws,
               Tensor2<double> bins) {
  const Index rows = logits.extent(0), columns = std::max<Index>(valid, 0), all = draws.extent(0);
  ensure(columns <= Index(logits.extent(1)) && Index(top.extent(0)) == rows && (rows == 1 || all == rows) && Index(bins.extent(0)) == all &&
             bins.extent(1) == 2 * draw_digits_of_round && round >= 0 && round < draw_rounds<A>,
         "draw_bins: logits ({},{}) do not fit {} valid columns, {} maxima, {} draws and bins ({},{})", rows, logits.extent(1), valid, top.extent(0),
         all, bins.extent(0), bins.extent(1));
  if (const auto run = dev.launch("draw_bins", double(all) * columns, double(sizeof(A)) * all * columns))
    backend::draw_bins<A>(dev, logits, columns, top, temperature, round, draws, bins);
}

template <class A>
void draw_digits(Device& dev, TokenSearch search, int round, const DrawRules& rules, Tensor2<const double> bins, Tensor1<TokenDraw> draws,
                 Tensor1<A> found) {
  const Index all = draws.extent(0);
  ensure(Index(bins.extent(0)) == all && bins.extent(1) == 2 * draw_digits_of_round && Index(found.extent(0)) == all,
         "draw_digits: {} draws do not fit bins ({},{}) and {} logits", all, bins.extent(0), bins.extent(1), found.extent(0));
  if (const auto run = dev.launch("draw_digits", double(all) * bins.extent(1), double(sizeof(double)) * all * bins.extent(1)))
    backend::draw_digits<A>(dev, search, round, rules, bins, draws, found);
}

template <class A>
void gumbel_best(Device& dev, Tensor2<const A> logits, Index valid, Tensor1<const A> top, Index first, double temperature,
                 Tensor1<const TokenDraw> draws, Tensor2<double> best) {
  const Index rows = logits.extent(0), columns = std::max<Index>(valid, 0), all = draws.extent(0);
  ensure(columns <= Index(logits.extent(1)) && Index(top.extent(0)) == rows && (rows == 1 || all == rows) && Index(best.extent(0)) == all &&
             best.extent(1) == 3,
         "gumbel_best: logits ({},{}) do not fit {} valid columns, {} maxima, {} draws and results ({},{})", rows, logits.extent(1), valid,
         top.extent(0), all, best.extent(0), best.extent(1));
  if (const auto run = dev.launch("gumbel_best", double(all) * columns, double(sizeof(A)) * all * columns))
    backend::gumbel_best<A>(dev, logits, columns, top, first, temperature, draws, best);
}

GYR_TOKEN_DRAW(double) GYR_TOKEN_DRAW(float)

}  // namespace gyr
