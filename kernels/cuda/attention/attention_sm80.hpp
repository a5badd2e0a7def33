// SPDX-License-Identifier: BSD-3-Clause
// Building blocks of the tensor-core attention kernels (mma.sync): bf16 tiles in shared memory, and GEMMs by four
// warps, each of which computes 16 output rows. A lane holds rows lane / 4 and lane / 4 + 8 of a fragment, and columns
// 2 (lane % 4) and 2 (lane % 4) + 1 of every eight.
#pragma once

#include <limits>

#include "kernels/cuda/attention/attention.hpp"

namespace gyr::backend::by_tensor_cores {

inline constexpr int tile = 64, threads = 128, quads = 4;  // quads: number of lanes that share a row of a fragment

// Exponentials have base 2, so scores are multiplied by log2 e beforehand.
inline constexpr float log2_e = 1.44269504f, ln_2 = 0.693147181f;

// Calls body(has cap, has dropout) with two std::bool_constant. Most calls have neither, and the kernels without them
// need fewer registers.
template <class Body>
void with_rule(const ScoreRule& scores, const Body& body) {
  const bool caps = scores.cap > 0;
  if (scores.dropout.drops()) caps ? body(std::true_type(), std::true_type()) : body(std::false_type(), std::true_type());
  else caps ? body(std::true_type(), std::false_type()) : body(std::false_type(), std::false_type());
}

// Tile of W columns in shared memory. Rows are padded by 16 bytes, so that eight rows touch every bank once.
template <int W, int rows = tile>
struct Tile {
  static constexpr int stride = W + 8, elements = rows * stride, bytes = elements * int(sizeof(bf16));
};

// Issues cp.async copies of rows [first, first + rows) of a head into a tile. Elements beyond row `end` or beyond
// `width` columns become zero.
template <int W, int rows = tile>
GYR_DEVICE void fetch(const cuda::Global<const bf16>& x, Index first, Index end, Index column, Index width, const cuda::Shared<bf16>& to) {
  constexpr int packs = W / 8, rows_at_once = threads / packs;
  static_assert(threads % packs == 0);
  const int c = cuda::thread_index() % packs * 8, mine = cuda::thread_index() / packs;
  const auto part = x.part(first + mine, column + c);
  const int count = c < width && first + mine < end ? int(end - first) - mine : 0;
  GYR_UNROLL
  for (int r = 0; r < rows; r += rows_at_once) part.copy_inside(r, 0, to.at((mine + r) * Tile<W>::stride + c), r < count);
}

// A fragment of rows [row, row + 16) and columns [c, c + 16) of a tile.
template <int W>
GYR_DEVICE cuda::FragmentA left_at(const cuda::Shared<bf16>& left_tile, int row, int c) {
  using namespace cuda;
  return load_matrix_x4(left_tile.at((row + lane() % 16) * Tile<W>::stride + c + lane() / 16 * 8));
}
// A fragment of this warp's 16 rows of a tile.
template <int W>
GYR_DEVICE cuda::FragmentA left_of(const cuda::Shared<bf16>& left_tile, int c) {
  return left_at<W>(left_tile, cuda::warp() * 16, c);
}

// d (R, 16, 8 F) += a (R, 16, W) b (8 F, W)'. a(r, c) returns the A fragment of row block r and columns [c, c + 16).
template <int W, int R, int F, class Left>
GYR_DEVICE void add_by_rows(const Left& a, const cuda::Shared<bf16>& b, cuda::FragmentD (&d)[R][F]) {
  using namespace cuda;
  GYR_UNROLL
  for (int c = 0; c < W; c += 16) {
    FragmentA left[R];
    GYR_UNROLL
    for (int r = 0; r < R; ++r) left[r] = a(r, c);
    GYR_UNROLL
    for (int n = 0; n < F; n += 2) {
      const FragmentA right = load_matrix_x4(b.at((n * 8 + lane() / 16 * 8 + lane() % 8) * Tile<W>::stride + c + lane() / 8 % 2 * 8));
      GYR_UNROLL
      for (int r = 0; r < R; ++r) {
        multiply_add(d[r][n], left[r], {{right.at[0], right.at[1]}});
        multiply_add(d[r][n + 1], left[r], {{right.at[2], right.at[3]}});
      }
    }
  }
}

// d (R, 16, W) += a (R, 16, 8 F) b (8 F, W). a: accumulator fragments of the previous GEMM, rounded to bf16 here.
template <int W, int R, int F>
GYR_DEVICE void add_by_columns(const cuda::FragmentD (&a)[R][F], const cuda::Shared<bf16>& b, cuda::FragmentD (&d)[R][W / 8]) {
  using namespace cuda;
  GYR_UNROLL
  for (int j = 0; j < F; j += 2) {
    FragmentA left[R];
    GYR_UNROLL
    for (int r = 0; r < R; ++r) {
      const FragmentD &one = a[r][j], &two = a[r][j + 1];
      left[r] = {{pair(one.at[0], one.at[1]), pair(one.at[2], one.at[3]), pair(two.at[0], two.at[1]), pair(two.at[2], two.at[3])}};
    }
    GYR_UNROLL
    for (int c = 0; c < W; c += 16) {
      const FragmentA right = load_matrix_x4_transposed(b.at((j * 8 + lane() % 16) * Tile<W>::stride + c + lane() / 16 * 8));
      GYR_UNROLL
      for (int r = 0; r < R; ++r) {
        multiply_add(d[r][c / 8], left[r], {{right.at[0], right.at[1]}});
        multiply_add(d[r][c / 8 + 1], left[r], {{right.at[2], right.at[3]}});
      }
    }
  }
}

}  // namespace gyr::backend::by_tensor_cores
