// SPDX-License-Identifier: BSD-3-Clause
// Small GEMM kernel with wgmma: one producer warpgroup loads tiles and one consumer warpgroup multiplies. Typical
// mistakes can be switched on.
#pragma once

#include "kernels/cuda/machine/launch.hpp"
#include "kernels/cuda/machine/wgmma_tiles.hpp"

namespace gyr::cuda::testing {

enum class GroupMistake {
  none,
  no_wait_for_copies,
  no_fence_after_copies,
  comes_before_copies,
  no_wait_for_a_full_place,
  leaves_a_place_too_early,
  no_fence_of_registers,
  registers_change_after_the_fence,
  no_wait_for_wgmmas,
  waits_for_one_group_less,
  tile_is_not_swizzled,
  comes_twice,
  comes_with_another_count
};

inline constexpr int group_tile = 64, group_depth = 64;  // group_tile: rows and columns of a tile of c; group_depth: k of one step
inline constexpr int full_place = 1, empty_place = 3;    // named barriers of the first of two buffers

struct GroupMma {
  using Tile = GroupTile<group_depth, group_tile>;
  static constexpr int threads = 2 * group_threads, shared_bytes = 4 * Tile::bytes;
  GYR_DEVICE static Tile a(int step) { return Tile(step % 2 * 2 * Tile::bytes); }
  GYR_DEVICE static Tile b(int step) { return Tile((step % 2 * 2 + 1) * Tile::bytes); }

  GroupMistake mistake;
  int row, column, steps;

  GYR_DEVICE void fetch_tile(const Global<const bf16>& x, int first, int k, const Tile& to) const {
    if (mistake != GroupMistake::tile_is_not_swizzled) {
      fetch<group_tile, group_threads>(x, first, x.rows(), k, x.columns() - k, to, 0, thread_index());
      return;
    }
    for (int i = thread_index(); i < group_tile * 8; i += group_threads)
      x.copy(first + i / 8, k + i % 8 * 8, to.pack(i / 8, 0) + (i % 8 - i / 8 % 8) * 8);
  }
  GYR_DEVICE void load_tiles(const Global<const bf16>& x, const Global<const bf16>& y) const {
    for (int step = 0; step < steps; ++step) {
      if (step >= 2) sync_named_barrier(empty_place + step % 2, threads);
      fetch_tile(x, row, step * group_depth, a(step));
      fetch_tile(y, column, step * group_depth, b(step));
      commit_copies();
      if (mistake == GroupMistake::comes_before_copies) arrive_at_barrier(full_place + step % 2, threads);
      if (mistake != GroupMistake::no_wait_for_copies) wait_copies<0>();
      if (mistake != GroupMistake::no_fence_after_copies) fence_async_proxy();
      if (mistake == GroupMistake::comes_before_copies) continue;
      arrive_at_barrier(full_place + step % 2, mistake == GroupMistake::comes_with_another_count && step == 1 ? threads - warp_size : threads);
      if (mistake == GroupMistake::comes_twice) arrive_at_barrier(full_place + step % 2, threads);
    }
  }
  GYR_DEVICE void leave(int step) const {
    if (step >= 0 && step + 2 < steps) arrive_at_barrier(empty_place + step % 2, threads);
  }
  GYR_DEVICE void multiply(FragmentD (&d)[group_tile / 8]) const {
    for (int step = 0; step < steps; ++step) {
      if (mistake != GroupMistake::no_wait_for_a_full_place) sync_named_barrier(full_place + step % 2, threads);
      if (mistake == GroupMistake::leaves_a_place_too_early) leave(step);
      if (mistake != GroupMistake::no_fence_of_registers) fence_wgmma(d);
      if (mistake == GroupMistake::registers_change_after_the_fence) d[1].at[2] += 1;
      for (int k = 0; k < group_depth; k += 16)
        issue_wgmma<true, Major::rows>(d, moved(a(step).by_rows(), Tile::to_column(k)), moved(b(step).by_rows(), Tile::to_column(k)));
      commit_wgmma();
      if (mistake == GroupMistake::waits_for_one_group_less) wait_wgmma<1>(d);
      else if (mistake != GroupMistake::no_wait_for_wgmmas) wait_wgmma<0>(d);
      if (mistake != GroupMistake::leaves_a_place_too_early) leave(step);
    }
  }
};

// c (M,N) = a (M,K) b (N,K)'. Each block computes one tile of c.
inline GYR_KERNEL_OF(GroupMma::threads, 1) warpgroup_mma(GroupMistake mistake, Global<const bf16> a, Global<const bf16> b, Global<float> c) {
  if constexpr (has_warpgroups) {
    const int across = int(ceil_div(c.columns(), group_tile)), number = int(block_index());
    const GroupMma of{mistake, number / across * group_tile, number % across * group_tile, int(ceil_div(a.columns(), group_depth))};
    if (warp() < group_threads / warp_size) {
      of.load_tiles(a, b);
      return;
    }
    FragmentD d[group_tile / 8] = {};
    of.multiply(d);
    for (int n = 0; n < group_tile / 8; ++n)
      for (int i = 0; i < 4; ++i) {
        const Index r = of.row + warp() % 4 * 16 + lane() / 4 + i / 2 * 8, j = of.column + n * 8 + 2 * (lane() % 4) + i % 2;
        if (r < c.rows() && j < c.columns()) c.store(r, j, d[n].at[i]);
      }
  }
}

// d (64, 8 F) = or += a (64, 16) b, with operands placed in shared memory byte by byte as the host chose; a is in
// registers or stored by rows.
template <int F, Major major, bool in_registers, bool adds>
GYR_KERNEL placed_wgmma(Global<const bf16> memory, int a_at, int b_at, int leading, int stride, Global<const bf16> a, Global<float> d) {
  if constexpr (has_warpgroups) {
    const Shared<bf16> all;
    for (int i = thread_index(); i < int(memory.columns()); i += block_threads()) all.store(i, memory.load(i));
    fence_async_proxy();
    sync_block();
    const int row = warp() % 4 * 16 + lane() / 4, column = 2 * (lane() % 4);
    FragmentD sum[F];
    FragmentA left[1];
    for (int n = 0; n < F; ++n)
      for (int i = 0; i < 4; ++i) sum[n].at[i] = d.load(row + i / 2 * 8, 8 * n + column + i % 2);
    for (int i = 0; i < 4; ++i) {
      const auto number = [&](int h) { return float(a.load(row + i % 2 * 8, i / 2 * 8 + column + h)); };
      left[0].at[i] = pair(number(0), number(1));
    }
    const MatrixDescriptor b = place_of(all.at(b_at), leading, stride);
    fence_wgmma(sum, left);
    if constexpr (in_registers) issue_wgmma<adds, major>(sum, left[0], b);
    else issue_wgmma<adds, major>(sum, place_of(all.at(a_at), pack_bytes, stride), b);
    commit_wgmma();
    wait_wgmma<0>(sum);
    for (int n = 0; n < F; ++n)
      for (int i = 0; i < 4; ++i) d.store(row + i / 2 * 8, 8 * n + column + i % 2, sum[n].at[i]);
  }
}

}  // namespace gyr::cuda::testing
