// SPDX-License-Identifier: BSD-3-Clause
// State of a warp's queries in tensor-core attention: visible key ranges, online softmax, and the output accumulator.
#pragma once

#include <limits>

#include "kernels/cuda/attention/attention_sm80.hpp"

namespace gyr::backend::by_tensor_cores {

inline constexpr float infinity = std::numeric_limits<float>::infinity();

// A warp's 16 R queries, and this lane's online-softmax state (maximum and sum) of its rows: rows lane / 4 and lane / 4
// + 8 of each 16. Token indices within a sequence fit in 32 bits.
template <int R>
struct Rows {
  int first, end;                  // first: first query of the warp; end: end of the block's queries
  int all_from, all_to, from, to;  // [all_from, all_to): keys that all rows see; [from, to): keys that any row sees
  float top[2 * R], sum[2 * R] = {};

  // Both bounds of the visible key range are non-decreasing from query to query. KeyRange: Heads, or another type with
  // hidden() and seen().
  template <class KeyRange>
  GYR_DEVICE Rows(const KeyRange& s, Index b, int first, int end) : first(first), end(end) {
    const int one = first < end ? first : end - 1, other = first + 16 * R < end ? first + 16 * R - 1 : end - 1;
    from = int(s.hidden(b, one)), all_to = int(s.seen(b, one)), all_from = int(s.hidden(b, other)), to = int(s.seen(b, other));
    if (first >= end) to = 0;  // this warp has no queries
    for (float& x : top) x = -infinity;
  }
  GYR_DEVICE int row(int h) const { return first + cuda::lane() / quads + h * 8; }
  GYR_DEVICE bool there(int h) const { return row(h) < end; }
  GYR_DEVICE int here(int h) const { return there(h) ? row(h) : end - 1; }  // row h of this lane, clamped to the block's last query

  // Continues from the maximum and sum of earlier key blocks. The four lanes of a row hold partial sums, so one of them
  // starts with the full sum.
  GYR_DEVICE void carry_on(const cuda::Global<float>& m, const cuda::Global<float>& l, Index first_row, Index head) {
    for (int h = 0; h < 2 * R; ++h)
      if (there(h)) {
        top[h] = m.load(first_row + row(h), head) * log2_e;
        sum[h] = cuda::lane() % quads > 0 ? 0 : l.load(first_row + row(h), head);
      }
  }
  GYR_DEVICE void store(const cuda::Global<float>& m, const cuda::Global<float>& l, Index first_row, Index head) {
    for (int h = 0; h < 2 * R; ++h) {
      for (int with = 1; with < quads; with *= 2) sum[h] += cuda::shuffle_xor(sum[h], with);
      if (!there(h) || cuda::lane() % quads > 0) continue;
      m.store(first_row + row(h), head, top[h] * ln_2);
      l.store(first_row + row(h), head, sum[h]);
    }
  }
  // The tile of `keys` keys from first_key on: visible to any row; visible to all rows.
  GYR_DEVICE bool overlaps(int first_key, int keys) const { return first_key < to && from < first_key + keys; }
  GYR_DEVICE bool sees_all(int first_key, int keys) const { return all_from <= first_key && first_key + keys <= all_to; }
};

// Sets the scores of masked keys to -infinity.
template <class KeyRange, int R, int F>
GYR_DEVICE void hide(const KeyRange& heads, Index b, const Rows<R>& rows, int first_key, cuda::FragmentD (&s)[R][F]) {
  GYR_UNROLL
  for (int h = 0; h < 2 * R; ++h) {
    const int lane_key = first_key + cuda::lane() % quads * 2, hidden = int(heads.hidden(b, rows.here(h))) - lane_key,
              seen = int(heads.seen(b, rows.here(h))) - lane_key;
    GYR_UNROLL
    for (int n = 0; n < F; ++n) {
      GYR_UNROLL
      for (int c = 0; c < 2; ++c)
        if (const int j = n * 8 + c; j < hidden || seen <= j) s[h / 2][n].at[h % 2 * 2 + c] = -infinity;
    }
  }
}

template <int W, int R>
GYR_DEVICE void scale(cuda::FragmentD (&o)[R][W], const float (&by)[2 * R]) {
  GYR_UNROLL
  for (int r = 0; r < R; ++r) {
    GYR_UNROLL
    for (int n = 0; n < W; ++n) {
      GYR_UNROLL
      for (int i = 0; i < 4; ++i) o[r][n].at[i] *= by[2 * r + i / 2];
    }
  }
}

// Loads and stores this lane's elements of the running output o (rows, H V) of one head.
template <int W, int R>
struct Outputs {
  const cuda::Global<float>& o;
  Index first_row, first_column;
  int width;

  GYR_DEVICE void load(const Rows<R>& rows, cuda::FragmentD (&out)[R][W / 8]) const {
    each(rows, [&](const cuda::Global<float>& row, int h, int n) {
      const auto x = row.load_pack<2>(0, n * 8);
      out[h / 2][n].at[h % 2 * 2] = x.at[0], out[h / 2][n].at[h % 2 * 2 + 1] = x.at[1];
    });
  }
  GYR_DEVICE void store(const Rows<R>& rows, const cuda::FragmentD (&out)[R][W / 8]) const {
    each(rows, [&](const cuda::Global<float>& row, int h, int n) {
      row.store_pack<2>(0, n * 8, {{out[h / 2][n].at[h % 2 * 2], out[h / 2][n].at[h % 2 * 2 + 1]}});
    });
  }

 private:
  template <class F>
  GYR_DEVICE void each(const Rows<R>& rows, const F& f) const {
    const int column = cuda::lane() % quads * 2;
    GYR_UNROLL
    for (int h = 0; h < 2 * R; ++h) {
      if (!rows.there(h)) continue;
      const cuda::Global<float> row = o.part(first_row + rows.row(h), first_column + column);
      GYR_UNROLL
      for (int n = 0; n < W / 8; ++n)
        if (n * 8 + column < width) f(row, h, n);
    }
  }
};

}  // namespace gyr::backend::by_tensor_cores
