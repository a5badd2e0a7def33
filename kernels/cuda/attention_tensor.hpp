// SPDX-License-Identifier: BSD-3-Clause
// What attention's kernels for tensor cores share: bf16 tiles in shared memory and their products by four warps, each of which has 16 rows of what
// comes out. A lane's rows of fragments are lane / 4 and that + 8, its columns 2 (lane % 4) and the next of every eight.
#pragma once

#include <limits>

#include "kernels/cuda/attention.hpp"

namespace gyr::backend::by_tensor_cores {

inline constexpr int tile = 64, threads = 128, quads = 4;  // quads: lanes that share a row of a fragment

// Exponents are of 2: scores enter multiplied by log2 e.
inline constexpr float log2_e = 1.44269504f, ln_2 = 0.693147181f;

// body(std::bool_constant<whether weights are dropped>()): registers are too few to draw where none is.
template <class Body>
void with_dropout(const Dropout& dropout, const Body& body) {
  if (dropout.drops()) body(std::true_type());
  else body(std::false_type());
}

// Tiles of W columns, in rows that are 16 bytes longer: eight of them touch every bank once.
template <int W, int rows = tile>
struct Tile {
  static constexpr int stride = W + 8, numbers = rows * stride, bytes = numbers * int(sizeof(bf16));
};

// Rows [first, first + rows) of a head; zeros behind its last row and column.
template <int W, int rows = tile>
GYR_DEVICE void fetch(const cuda::Global<const bf16>& x, Index first, Index end, Index column, Index width, const cuda::Shared<bf16>& to) {
  constexpr int packs = W / 8, rows_at_once = threads / packs;
  static_assert(threads % packs == 0);
  const int c = cuda::thread_index() % packs * 8;
  GYR_UNROLL
  for (int begin = 0; begin < rows; begin += rows_at_once) {
    const int r = begin + cuda::thread_index() / packs;
    x.copy(first + r, column + c, to.at(r * Tile<W>::stride + c), first + r < end && c < width);
  }
}

// The fragment of this warp's rows of a tile and columns [c, c + 16).
template <int W>
GYR_DEVICE cuda::FragmentA left_of(const cuda::Shared<bf16>& own, int c) {
  using namespace cuda;
  return load_four(own.at((warp() * 16 + lane() % 16) * Tile<W>::stride + c + lane() / 16 * 8));
}

// d (16, 8 F) += a (16, W) b (8 F, W)'.   a: the fragment of 16 columns from c on
template <int W, int F, class Left>
GYR_DEVICE void add_by_rows(const Left& a, const cuda::Shared<bf16>& b, cuda::FragmentD (&d)[F]) {
  using namespace cuda;
  GYR_UNROLL
  for (int c = 0; c < W; c += 16) {
    const FragmentA left = a(c);
    GYR_UNROLL
    for (int n = 0; n < F; n += 2) {
      const FragmentA r = load_four(b.at((n * 8 + lane() / 16 * 8 + lane() % 8) * Tile<W>::stride + c + lane() / 8 % 2 * 8));
      multiply_add(d[n], left, {{r.at[0], r.at[1]}});
      multiply_add(d[n + 1], left, {{r.at[2], r.at[3]}});
    }
  }
}

// d (16, W) += a (16, 8 F) b (8 F, W), of a as a product left it.
template <int W, int F>
GYR_DEVICE void add_by_columns(const cuda::FragmentD (&a)[F], const cuda::Shared<bf16>& b, cuda::FragmentD (&d)[W / 8]) {
  using namespace cuda;
  GYR_UNROLL
  for (int j = 0; j < F; j += 2) {
    const FragmentD &one = a[j], &two = a[j + 1];
    const FragmentA left{{pair(one.at[0], one.at[1]), pair(one.at[2], one.at[3]), pair(two.at[0], two.at[1]), pair(two.at[2], two.at[3])}};
    GYR_UNROLL
    for (int c = 0; c < W; c += 16) {
      const FragmentA r = load_four_transposed(b.at((j * 8 + lane() % 16) * Tile<W>::stride + c + lane() / 16 * 8));
      multiply_add(d[c / 8], left, {{r.at[0], r.at[1]}});
      multiply_add(d[c / 8 + 1], left, {{r.at[2], r.at[3]}});
    }
  }
}

}  // namespace gyr::backend::by_tensor_cores
