// SPDX-License-Identifier: BSD-3-Clause
// What the scan's kernels for tensor cores share: bf16 tiles of 64 tokens in shared memory and their products by four warps, each of which has 16
// rows of what comes out. A lane's rows of fragments are lane / 4 and that + 8, its columns 2 (lane % 4) and the next of every eight.
#pragma once

#include "kernels/cuda/ssd.hpp"

namespace gyr::cuda::scan {

inline constexpr int span = 64, warps = 4, tensor_threads = warps * warp_size, quads = 4;  // span: tokens of a tile; quads: lanes that share a row

// Numbers of a row in shared memory: whole fragments, and 16 bytes so that eight rows touch every bank once.
GYR_FUNCTION constexpr int stride_of(Index width) { return int(ceil_div(width, 16)) * 16 + 8; }

// Rows of bf16 in shared memory.
struct Tile {
  int first_byte, stride, rows;
  GYR_FUNCTION Tile(int first_byte, Index width, int rows = span) : first_byte(first_byte), stride(stride_of(width)), rows(rows) {}
  GYR_FUNCTION int end() const { return first_byte + rows * stride * int(sizeof(bf16)); }  // a multiple of 16
  GYR_DEVICE bf16* at(int r, Index c) const { return Shared<bf16>(first_byte).at(r * stride + int(c)); }
};

// Rows [first, first + 64) of `width` columns on their way to a tile; zeros behind the end.
GYR_DEVICE void fetch(const Global<const bf16>& x, Index first, Index end, Index column, Index width, const Tile& to) {
  const int packs = (to.stride - 8) / 8;
  for (int i = thread_index(); i < span * packs; i += tensor_threads) {
    const int r = i / packs, c = i % packs * 8;
    x.copy(first + r, column + c, to.at(r, c), first + r < end && c < width);
  }
}

// Columns [n0, n0 + 64) of a head's state, rounded, in rows of its channels; zeros outside.
GYR_DEVICE void round_state(const Cut& s, const Global<const float>& states, Index row, Index head, Index n0, const Tile& to) {
  constexpr int packs = 4, row_packs = span / packs, flight = 4;  // flight: loads under way at a time
  for (int begin = thread_index(); begin < to.rows * row_packs; begin += flight * tensor_threads) {
    Pack<float, packs> v[flight] = {};
    GYR_UNROLL
    for (int j = 0; j < flight; ++j) {
      const int i = begin + j * tensor_threads, p = i / row_packs, n = i % row_packs * packs;
      if (p < s.head_dim && n0 + n < s.state_size) v[j] = states.template load_pack<packs>(row, (head * s.head_dim + p) * s.state_size + n0 + n);
    }
    GYR_UNROLL
    for (int j = 0; j < flight; ++j) {
      const int i = begin + j * tensor_threads, p = i / row_packs, n = i % row_packs * packs;
      Pack<bf16, packs> rounded;
      for (int e = 0; e < packs; ++e) rounded.at[e] = bf16(v[j].at[e]);
      if (p < to.rows) Shared<Pack<bf16, packs>>(to.first_byte + (p * to.stride + n) * int(sizeof(bf16))).store(0, rounded);
    }
  }
}

// The fragment of rows [16 warp, ..) and columns [c, c + 16).
GYR_DEVICE FragmentA left_of(const Tile& a, Index c) { return load_four(a.at(warp() * 16 + lane() % 16, c + lane() / 16 * 8)); }

// d += a b' for two neighbours of eight rows of b, whose columns are those of a;  and d += a b for two neighbours of eight columns.
GYR_DEVICE void multiply_rows(FragmentD& d, FragmentD& next, const FragmentA& a, const Tile& b, int row, Index c) {
  const FragmentA r = load_four(b.at(row + lane() / 16 * 8 + lane() % 8, c + lane() / 8 % 2 * 8));
  multiply_add(d, a, {{r.at[0], r.at[1]}});
  multiply_add(next, a, {{r.at[2], r.at[3]}});
}
GYR_DEVICE void multiply_columns(FragmentD& d, FragmentD& next, const FragmentA& a, const Tile& b, int row, Index c) {
  const FragmentA r = load_four_transposed(b.at(row + lane() % 16, c + lane() / 16 * 8));
  multiply_add(d, a, {{r.at[0], r.at[1]}});
  multiply_add(next, a, {{r.at[2], r.at[3]}});
}

// d (16, 8 F) += a (16, count) b (8 F, count)', of columns from a_column and b_column.
template <int F>
GYR_DEVICE void add_by_rows(const Tile& a, Index a_column, const Tile& b, Index b_column, Index count, FragmentD (&d)[F]) {
  for (Index c = 0; c < count; c += 16) {
    const FragmentA left = left_of(a, a_column + c);
    GYR_UNROLL
    for (int n = 0; n < F; n += 2) multiply_rows(d[n], d[n + 1], left, b, n * 8, b_column + c);
  }
}
// d (16, 8 F) += a (16, count) b (count, 8 F)
template <int F>
GYR_DEVICE void add_by_columns(const Tile& a, const Tile& b, Index count, FragmentD (&d)[F]) {
  for (int c = 0; c < count; c += 16) {
    const FragmentA left = left_of(a, c);
    GYR_UNROLL
    for (int n = 0; n < F; n += 2) multiply_columns(d[n], d[n + 1], left, b, c, n * 8);
  }
}
// The same of a as a product left it.
template <int F>
GYR_DEVICE void add_by_columns(const FragmentD (&a)[span / 8], const Tile& b, FragmentD (&d)[F]) {
  GYR_UNROLL
  for (int c = 0; c < span; c += 16) {
    const FragmentD &one = a[c / 8], &two = a[c / 8 + 1];
    const FragmentA left{{pair(one.at[0], one.at[1]), pair(one.at[2], one.at[3]), pair(two.at[0], two.at[1]), pair(two.at[2], two.at[3])}};
    GYR_UNROLL
    for (int n = 0; n < F; n += 2) multiply_columns(d[n], d[n + 1], left, b, c, n * 8);
  }
}

// A lane's rows, its numbers f(which row, column, number), and pairs of these f(which row, column, number, next).
GYR_DEVICE int my_row(int h) { return warp() * 16 + lane() / quads + 8 * h; }
template <int F, class G>
GYR_DEVICE void each_number(FragmentD (&d)[F], const G& f) {
  GYR_UNROLL
  for (int n = 0; n < F; ++n) {
    GYR_UNROLL
    for (int i = 0; i < 4; ++i) f(i / 2, n * 8 + lane() % quads * 2 + i % 2, d[n].at[i]);
  }
}
template <int F, class G>
GYR_DEVICE void each_pair(FragmentD (&d)[F], const G& f) {
  GYR_UNROLL
  for (int n = 0; n < F; ++n) {
    GYR_UNROLL
    for (int h = 0; h < 2; ++h) f(h, n * 8 + lane() % quads * 2, d[n].at[2 * h], d[n].at[2 * h + 1]);
  }
}
// The sum over the lanes of a row.
GYR_DEVICE float quad_sum(float v) {
  for (int with = 1; with < quads; with *= 2) v += shuffle_xor(v, with);
  return v;
}

// Whether tensor cores take this: rows begin where packs do, heads of up to 128 numbers and states of up to 256.
template <class... X>
bool fits_tensor_cores(const Cut& s, const Global<X>&... tensors) {
  return s.head_dim % 8 == 0 && s.state_size % 8 == 0 && s.head_dim <= 128 && s.state_size <= 256 &&
         (tensors.template packs<pack_bytes / int(sizeof(X))>() && ...);
}

// The kernels of ssd_*.cu for bf16. False where they do not take it, and nothing is done.
bool chunk_states_by_tensor_cores(Device&, const Cut&, const Tokens<bf16>&, const States<float>&);
bool chunk_states_of_outputs_by_tensor_cores(Device&, const Cut&, const Tokens<bf16>&, const Global<const bf16>& dy, const Global<float>& dstates);
bool outputs_by_tensor_cores(Device&, const Cut&, const Tokens<bf16>&, Tensor1<const float> d, const Global<const float>& entering,
                             const Global<bf16>& y);
// But for `through`.
bool token_gradients_by_tensor_cores(Device&, const Cut&, const Tokens<bf16>&, Tensor1<const float> d, const Global<const bf16>& dy,
                                     const Global<const float>& entering, const States<const float>& gradients, const SsdInputGradient<bf16>&,
                                     const TokenSums<float>&);

}  // namespace gyr::cuda::scan
