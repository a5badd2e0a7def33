// SPDX-License-Identifier: BSD-3-Clause
// Small GEMM kernel with mma fragments and asynchronous copies of tiles. Typical mistakes can be switched on.
#pragma once

#include "kernels/cuda/machine/launch.hpp"

namespace gyr::cuda::testing {

inline constexpr int tile = 64, depth = 32, stride = depth + 8;  // rows of 80 bytes: eight of them touch every bank once
inline constexpr int tile_elements = tile * stride, threads = 128;

enum class Mistake { none, waits_for_one_group_less, no_barrier_after_the_copy, no_barrier_before_the_next_copy };

// Copies columns [k, k + depth) of rows [first, first + tile) to shared memory, asynchronously.
GYR_DEVICE void fetch(const Global<const bf16>& x, Index first, Index k, const Shared<bf16>& to) {
  for (int i = thread_index(); i < tile * depth / 8; i += threads) {
    const int row = i / (depth / 8), column = i % (depth / 8) * 8;
    x.copy(first + row, k + column, to.at(row * stride + column));
  }
}

// c (M,N) = a (M,K) b (N,K)'. Each block computes one tile of c, and each warp 16 of its rows. Tiles of a and b are
// double-buffered.
inline GYR_KERNEL tiled_gemm(Mistake mistake, Global<const bf16> a, Global<const bf16> b, Global<float> c) {
  const Index across = ceil_div(c.columns(), tile), row = block_index() / across * tile, column = block_index() % across * tile;
  const Shared<bf16> a_tiles, b_tiles(2 * tile_elements * int(sizeof(bf16)));
  const auto a_tile = [&](Index step) { return Shared<bf16>(int(step % 2) * tile_elements * int(sizeof(bf16))); };
  const auto b_tile = [&](Index step) { return Shared<bf16>(int(2 + step % 2) * tile_elements * int(sizeof(bf16))); };
  const Index steps = ceil_div(a.columns(), depth);
  FragmentD d[tile / 8] = {};
  fetch(a, row, 0, a_tile(0));
  fetch(b, column, 0, b_tile(0));
  commit_copies();
  for (Index step = 0; step < steps; ++step) {
    fetch(a, row, (step + 1) * depth, a_tile(step + 1));
    fetch(b, column, (step + 1) * depth, b_tile(step + 1));
    commit_copies();
    if (mistake == Mistake::waits_for_one_group_less) wait_copies<2>();
    else wait_copies<1>();
    if (mistake != Mistake::no_barrier_after_the_copy) sync_block();
    for (int k = 0; k < depth; k += 16) {
      const FragmentA left = load_matrix_x4(a_tile(step).at((warp() * 16 + lane() % 16) * stride + k + lane() / 16 * 8));
      for (int n = 0; n < tile; n += 16) {  // two 8-column matrices of b, each in two halves along k
        const FragmentA right = load_matrix_x4(b_tile(step).at((n + lane() / 16 * 8 + lane() % 8) * stride + k + lane() / 8 % 2 * 8));
        multiply_add(d[n / 8], left, {{right.at[0], right.at[1]}});
        multiply_add(d[n / 8 + 1], left, {{right.at[2], right.at[3]}});
      }
    }
    if (mistake != Mistake::no_barrier_before_the_next_copy) sync_block();
  }
  for (int n = 0; n < tile / 8; ++n)
    for (int i = 0; i < 4; ++i) {
      const Index r = row + warp() * 16 + lane() / 4 + i / 2 * 8, j = column + n * 8 + 2 * (lane() % 4) + i % 2;
      if (r < c.rows() && j < c.columns()) c.store(r, j, d[n].at[i]);
    }
}

}  // namespace gyr::cuda::testing
