// SPDX-License-Identifier: BSD-3-Clause
// What both kernels of attention's gradients by tensor cores share: what they read, which tokens have to do with each other, what they write.
#pragma once

#include "kernels/cuda/attention/attention_sm80.hpp"

namespace gyr::backend::by_tensor_cores {

struct Inputs {
  cuda::Global<const bf16> q, k, v, dout;
  cuda::Global<const float> lse, delta;
};

// Others that a token sees or that see it: [from, to). Neither falls from token to token. Tokens of a sequence are counted in 32 bits here.
struct Bounds {
  int from, to;
};

GYR_DEVICE Bounds keys_of(const Heads& s, Index b, Index i) { return {int(s.masked_out(b, i)), int(s.visible_by_mask(b, i))}; }
// The first query of [from, to) of which something is true that stays true.
template <class Holds>
GYR_DEVICE Index first_query(Index from, Index to, const Holds& holds) {
  for (Index end = to; from < end;) {
    const Index i = (from + end) / 2;
    if (holds(i)) end = i;
    else from = i + 1;
  }
  return from;
}
GYR_DEVICE Bounds queries_of(const Heads& s, Index b, Index j) {
  Index from = s.visible.first_query_in_window(j, s.queries), to = s.visible.first_query_past_window(j, s.queries);
  if (s.ahead) from = first_query(from, to, [&](Index i) { return s.visible_by_mask(b, i) > j; });
  if (s.positions) to = first_query(from, to, [&](Index i) { return s.masked_out(b, i) > j; });
  return {int(from), int(to)};
}

// Of a query: log-sum-exp of base 2, and delta.
using Stat = cuda::Pack<float, 2>;
GYR_DEVICE Stat stat_of(const Inputs& in, Index row, Index head) { return {{in.lse.load(row, head) * log2_e, in.delta.load(row, head)}}; }

// x = (or +=) factor * sum, of this lane's rows and the columns of a head.
template <int W, class G>
GYR_DEVICE void store(const cuda::Global<float>& x, bool adds, const G& of, Index first_row, Index width, float factor,
                      const cuda::FragmentD (&sum)[1][W / 8]) {
  GYR_UNROLL
  for (int n = 0; n < W / 8; ++n) {
    GYR_UNROLL
    for (int h = 0; h < 2; ++h) {
      const Index column = n * 8 + cuda::lane() % quads * 2;
      if (of.row(h) >= of.end || column >= width) continue;
      cuda::Pack<float, 2> v = {};
      if (adds) v = x.template load_pack<2>(first_row + of.row(h), of.head * width + column);
      for (int c = 0; c < 2; ++c) v.at[c] += factor * sum[0][n].at[2 * h + c];
      x.template store_pack<2>(first_row + of.row(h), of.head * width + column, v);
    }
  }
}

}  // namespace gyr::backend::by_tensor_cores

namespace gyr::backend {

// Gradients of scores without a cap, none of which is dropped, where the GPU multiplies by warpgroups. dk and dv of several parts are the sums of
// each.
void attention_gradients_by_warpgroups(Device&, const Heads&, double scale, const by_tensor_cores::Inputs&, Index parts,
                                       const cuda::Global<float>& dq, const cuda::Global<float>& dk, const cuda::Global<float>& dv);

}  // namespace gyr::backend
