// SPDX-License-Identifier: BSD-3-Clause
// Output tile of a bf16 GEMM computed by one block on Hopper (wgmma). The producer warpgroup loads operand tiles by
// cp.async into a four-stage ring buffer: each of its warps fills one stage once the consumers have released it. Each
// of the two consumer warpgroups computes 64 rows of the output. Rows of operands must be 16-byte aligned.
#pragma once

#include "kernels/cuda/experts/grouped_gemm.hpp"
#include "kernels/cuda/machine/wgmma_tiles.hpp"

namespace gyr::cuda::groups {

struct WarpgroupTile {
  static constexpr int rows = 128, columns = 256, depth = 64, half = columns / 2, places = 4;
  static constexpr int computing = 2, threads = (1 + computing) * group_threads, blocks = 1;
  static constexpr bool exists = has_warpgroups;
  // Registers per thread of the producer and of the consumers (setmaxnreg). A block starts with 168 registers per
  // thread.
  static constexpr int producer_registers = 88, consumer_registers = 208;
  static_assert(producer_registers + computing * consumer_registers <= (1 + computing) * 168);

  template <bool by_rows, int extent>
  using Place = GroupTile<by_rows ? depth : extent, by_rows ? extent : depth>;
  template <bool left_by_rows, bool right_by_rows>
  static constexpr int shared_bytes = places*(Place<left_by_rows, rows>::bytes + Place<right_by_rows, columns>::bytes);

  // Named barriers: a stage is full (one barrier per consumer), and a stage is empty.
  static constexpr int full_threads = warp_size + group_threads, empty_threads = warp_size + computing * group_threads;
  GYR_FUNCTION static constexpr int full(int place, int group) { return 1 + computing * place + group; }
  GYR_FUNCTION static constexpr int empty(int place) { return 1 + computing * places + place; }
};

template <bool left_by_rows, bool right_by_rows>
struct WarpgroupGemm {
  using T = WarpgroupTile;
  using Left = T::Place<left_by_rows, T::rows>;
  using Right = T::Place<right_by_rows, T::columns>;
  static constexpr Major major = right_by_rows ? Major::rows : Major::columns;

  const Operand<left_by_rows, T::rows, T::depth>& left;
  const Operand<right_by_rows, T::columns, T::depth>& right;

  GYR_DEVICE static Left left_tile(int step) { return Left(step % T::places * Left::bytes); }
  GYR_DEVICE static Right right_tile(int step) { return Right(T::places * Left::bytes + step % T::places * Right::bytes); }
  GYR_DEVICE int steps() const { return int(ceil_div(left.k_end - left.k_begin, T::depth)); }

  template <bool by_rows, int extent, int W, int R>
  GYR_DEVICE static void fetch_tile(const Operand<by_rows, extent, T::depth>& from, int step, const GroupTile<W, R>& to) {
    const Index deep = from.k_begin + Index(step) * T::depth;
    if constexpr (by_rows) fetch<R, warp_size>(from.x, from.row_begin, from.row_end, deep, from.k_end - deep, to, 0, lane());
    else fetch<R, warp_size>(from.x, deep, from.k_end, from.row_begin, from.row_end - from.row_begin, to, 0, lane());
  }
  GYR_DEVICE void load_tile() const {
    for (int step = warp(); step < steps(); step += T::places) {
      if (step >= T::places) sync_named_barrier(T::empty(warp()), T::empty_threads);
      fetch_tile(left, step, left_tile(step));
      fetch_tile(right, step, right_tile(step));
      commit_copies();
      wait_copies<0>();
      fence_async_proxy();
      for (int g = 0; g < T::computing; ++g) arrive_at_barrier(T::full(warp(), g), T::full_threads);
    }
  }

  GYR_DEVICE static void wait_for(int step, int group) { sync_named_barrier(T::full(step % T::places, group), T::full_threads); }
  GYR_DEVICE void leave(int step) const {
    if (step + T::places < steps()) arrive_at_barrier(T::empty(step % T::places), T::empty_threads);
  }
  // Descriptor of the right operand for one half of the output columns and the summed range [k, k + 16).
  GYR_DEVICE static MatrixDescriptor right_at(int step, int half, int k) {
    if constexpr (right_by_rows) return moved(right_tile(step).by_rows(half * T::half), Right::to_column(k));
    else return moved(right_tile(step).by_columns(), Right::to_column(half * T::half) + Right::to_row(k));
  }
  // Consumer loop. If the left operand is K-major, the wgmmas of a step run while the warpgroup issues those of the
  // next step.
  GYR_DEVICE void walk(int group, FragmentD (&low)[T::half / 8], FragmentD (&high)[T::half / 8]) const {
    const int all = steps();
    if (left.row_begin + group * 64 >= left.row_end) {  // this warpgroup has no rows, and only waits for and releases the stages
      for (int step = 0; step < all; ++step) wait_for(step, group), leave(step);
    } else if constexpr (left_by_rows) {
      fence_wgmma(low, high);
      for (int step = 0; step < all; ++step) {
        wait_for(step, group);
        GYR_UNROLL
        for (int k = 0; k < T::depth; k += 16) {
          const MatrixDescriptor a = moved(left_tile(step).by_rows(group * 64), Left::to_column(k));
          issue_wgmma<true, major>(low, a, right_at(step, 0, k));
          issue_wgmma<true, major>(high, a, right_at(step, 1, k));
        }
        commit_wgmma();
        wait_wgmma<1>();
        if (step > 0) leave(step - 1);
      }
      wait_wgmma<0>(low, high);
    } else {
      for (int step = 0; step < all; ++step) {
        wait_for(step, group);
        FragmentA a[T::depth / 16];
        const int row = group * 64 + warp() % 4 * 16 + lane() / 8 % 2 * 8;
        GYR_UNROLL
        for (int i = 0; i < T::depth / 16; ++i)
          a[i] = load_matrix_x4_transposed(left_tile(step).pack(16 * i + lane() / 16 * 8 + lane() % 8, row / 8));
        fence_wgmma(low, high, a);
        GYR_UNROLL
        for (int i = 0; i < T::depth / 16; ++i) {
          issue_wgmma<true, major>(low, a[i], right_at(step, 0, 16 * i));
          issue_wgmma<true, major>(high, a[i], right_at(step, 1, 16 * i));
        }
        commit_wgmma();
        wait_wgmma<0>(low, high, a);
        leave(step);
      }
    }
  }
};

template <bool packs, bool left_by_rows, bool right_by_rows, class Store>
GYR_DEVICE void multiply(WarpgroupTile, const Operand<left_by_rows, WarpgroupTile::rows, WarpgroupTile::depth>& left,
                         const Operand<right_by_rows, WarpgroupTile::columns, WarpgroupTile::depth>& right, const Store& store) {
  static_assert(packs);
  using T = WarpgroupTile;
  const WarpgroupGemm<left_by_rows, right_by_rows> wgmma{left, right};
  const int role = shuffle(thread_index() / group_threads, 0);
  if (role == 0) {
    decrease_registers<T::producer_registers>();
    wgmma.load_tile();
    return;
  }
  increase_registers<T::consumer_registers>();
  FragmentD sum[2][T::half / 8] = {};
  wgmma.walk(role - 1, sum[0], sum[1]);
  const Index row = left.row_begin + (role - 1) * 64 + warp() % 4 * 16 + lane() / 4;
  GYR_UNROLL
  for (int half = 0; half < 2; ++half) {
    GYR_UNROLL
    for (int n = 0; n < T::half / 8; ++n) {
      GYR_UNROLL
      for (int h = 0; h < 2; ++h)
        store(row + 8 * h, right.row_begin + half * T::half + 8 * n + lane() % 4 * 2,
              Pack<float, 2>{{sum[half][n].at[2 * h], sum[half][n].at[2 * h + 1]}});
    }
  }
}

}  // namespace gyr::cuda::groups
