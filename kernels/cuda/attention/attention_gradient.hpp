// SPDX-License-Identifier: BSD-3-Clause
// Code shared by both tensor-core kernels of the attention gradients (mma.sync and wgmma): inputs, visible ranges of
// tokens, and stores of results.
#pragma once

#include "kernels/cuda/attention/attention_sm80.hpp"

namespace gyr::backend::by_tensor_cores {

struct Inputs {
  cuda::Global<const bf16> q, k, v, dout;
  cuda::Global<const float> lse, delta;
};

// Range [from, to) of the keys that a query sees, or of the queries that see a key. Both bounds are non-decreasing from
// token to token. Token indices within a sequence fit in 32 bits here.
struct Bounds {
  int from, to;
};

GYR_DEVICE Bounds keys_of(const Heads& s, Index b, Index i) { return {int(s.masked_out(b, i)), int(s.visible_by_mask(b, i))}; }
// First query in [from, to) for which holds(query) is true, by binary search. Once holds() is true, it must be true for
// all later queries.
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

// Log-sum-exp in base 2 and delta of one query.
using Stat = cuda::Pack<float, 2>;
GYR_DEVICE Stat stat_of(const Inputs& in, Index row, Index head) { return {{in.lse.load(row, head) * log2_e, in.delta.load(row, head)}}; }

// x = (or +=) factor * sum, for this lane's fragment rows and the columns of one head.
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

// Hopper version (wgmma) of the attention gradients, for scores without a cap and without dropout. If parts > 1, dk and
// dv receive the partial sums of each part.
void attention_gradients_by_warpgroups(Device&, const Heads&, double scale, const by_tensor_cores::Inputs&, Index parts,
                                       const cuda::Global<float>& dq, const cuda::Global<float>& dk, const cuda::Global<float>& dv);

}  // namespace gyr::backend
