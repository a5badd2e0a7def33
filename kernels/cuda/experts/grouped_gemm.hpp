// SPDX-License-Identifier: BSD-3-Clause
// Output tile of a bf16 GEMM computed by one block on tensor cores (mma.sync), with a multi-stage cp.async pipeline.
#pragma once

#include "kernels/cuda/machine/tile_pipeline.hpp"

namespace gyr::cuda::groups {

// Operand of a block's GEMM. `row_begin` counts rows or columns of the output, `k_begin` counts the summed dimension, each up
// to its end. by_rows: the operand is x(row, k), otherwise x(k, row). Tiles in shared memory have the layout of
// x. Their rows are padded by 16 bytes, so that eight rows touch every bank once.
template <bool by_rows, int extent, int depth>
struct Operand {
  static constexpr int rows = by_rows ? extent : depth, columns = by_rows ? depth : extent;
  static constexpr int stride = columns + 8, bytes = rows * stride * int(sizeof(bf16));
  static constexpr int threads = 128;  // number of threads that load a tile

  Global<const bf16> x;
  Index row_begin, row_end, k_begin, k_end;

  // Loads tile number `step` of the summed dimension, with zeros beyond the ends. packs: rows are 16-byte aligned, so
  // that cp.async can be used.
  template <bool packs>
  GYR_DEVICE void load_tile(int step, const Shared<bf16>& to) const {
    const Index deep = k_begin + Index(step) * depth;
    const Index row = by_rows ? row_begin : deep, column = by_rows ? deep : row_begin;
    const Index rows_left = (by_rows ? row_end : k_end) - row, columns_left = (by_rows ? k_end : row_end) - column;
    if constexpr (packs) {
      constexpr int across = columns / 8, at_once = threads / across;
      static_assert(threads % across == 0 && rows % at_once == 0);
      // Eight lanes write at a time and must cover all banks. With rows of 64 bytes they write two rows that are four
      // apart.
      const int place = thread_index() / across, c = thread_index() % across * 8;
      const int r = across == 4 ? place / 8 * 8 + place % 2 * 4 + place / 2 % 4 : place;
      const auto part = x.part(row + r, column + c);
      const int wanted = c < columns_left ? int(rows_left < rows ? rows_left : rows) - r : 0;
      GYR_UNROLL
      for (int i = 0; i < rows; i += at_once) part.copy_inside(i, 0, to.at((r + i) * stride + c), i < wanted);
    } else {
      for (int i = thread_index(); i < rows * columns; i += threads) {
        const int r = i / columns, c = i % columns;
        to.store(r * stride + c, r < rows_left && c < columns_left ? x.load(row + r, column + c) : bf16(0.0f));
      }
    }
  }
  // Fragments for the summed range [k, k + 16). left: rows [o, o + 16) of the left operand. right: columns [o, o + 8)
  // and [o + 8, o + 16) of the right operand.
  GYR_DEVICE static FragmentA left(const Shared<bf16>& tile, int o, int k) {
    if constexpr (by_rows) return load_matrix_x4(tile.at((o + lane() % 16) * stride + k + lane() / 16 * 8));
    else return load_matrix_x4_transposed(tile.at((k + lane() / 16 * 8 + lane() % 8) * stride + o + lane() / 8 % 2 * 8));
  }
  GYR_DEVICE static FragmentA right(const Shared<bf16>& tile, int o, int k) {
    if constexpr (by_rows) return load_matrix_x4(tile.at((o + lane() / 16 * 8 + lane() % 8) * stride + k + lane() / 8 % 2 * 8));
    else return load_matrix_x4_transposed(tile.at((k + lane() % 16) * stride + o + lane() / 16 * 8));
  }
};

// Output tile of a block, and its partition among the warps: `across` warps next to each other in a row of warps.
template <int rows_, int columns_, int depth_, int across_>
struct Tile {
  static constexpr int threads = 128, blocks = 2;  // blocks: minimum number of resident blocks per SM
  static constexpr bool exists = true;             // true if the target architecture supports this tile
  static constexpr int rows = rows_, columns = columns_, depth = depth_, across = across_, stages = 4;
  static constexpr int warp_rows = rows / (threads / warp_size / across), warp_columns = columns / across;
  template <bool left_by_rows, bool right_by_rows>
  static constexpr int shared_bytes = stages*(Operand<left_by_rows, rows, depth>::bytes + Operand<right_by_rows, columns, depth>::bytes);
};
using LargeTile = Tile<128, 128, 32, 2>;
using FewRows = Tile<16, 64, 64, 4>;  // for groups with few rows, where the speed is that of reading the weights

// Computes left times right' for the tile, and calls store(row, column, two neighbouring elements). Warps whose rows
// are all beyond the end skip the MMAs.
template <bool packs, class Tile, bool left_by_rows, bool right_by_rows, class Store>
GYR_DEVICE void multiply(Tile, const Operand<left_by_rows, Tile::rows, Tile::depth>& left,
                         const Operand<right_by_rows, Tile::columns, Tile::depth>& right, const Store& store) {
  using Left = Operand<left_by_rows, Tile::rows, Tile::depth>;
  using Right = Operand<right_by_rows, Tile::columns, Tile::depth>;
  constexpr int R = Tile::warp_rows / 16, C = Tile::warp_columns / 8;
  const int row = warp() / Tile::across * Tile::warp_rows, column = warp() % Tile::across * Tile::warp_columns;
  const bool works = left.row_begin + row < left.row_end;
  const auto left_tile = [](int place) { return Shared<bf16>(place * Left::bytes); };
  const auto right_tile = [](int place) { return Shared<bf16>(Tile::stages * Left::bytes + place * Right::bytes); };
  FragmentD sum[R][C] = {};
  pipeline<Tile::stages>(
      int(ceil_div(left.k_end - left.k_begin, Tile::depth)),
      [&](int step, int place) {
        left.template load_tile<packs>(step, left_tile(place));
        right.template load_tile<packs>(step, right_tile(place));
      },
      [&](int, int place) {
        if (!works) return;
        GYR_UNROLL
        for (int k = 0; k < Tile::depth; k += 16) {
          FragmentA a[R];
          GYR_UNROLL
          for (int r = 0; r < R; ++r) a[r] = Left::left(left_tile(place), row + 16 * r, k);
          GYR_UNROLL
          for (int c = 0; c < C; c += 2) {
            const FragmentA b = Right::right(right_tile(place), column + 8 * c, k);
            GYR_UNROLL
            for (int r = 0; r < R; ++r) {
              multiply_add(sum[r][c], a[r], {{b.at[0], b.at[1]}});
              multiply_add(sum[r][c + 1], a[r], {{b.at[2], b.at[3]}});
            }
          }
        }
      });
  GYR_UNROLL
  for (int r = 0; r < R; ++r) {
    GYR_UNROLL
    for (int c = 0; c < C; ++c) {
      GYR_UNROLL
      for (int h = 0; h < 2; ++h)
        store(left.row_begin + row + 16 * r + 8 * h + lane() / 4, right.row_begin + column + 8 * c + lane() % 4 * 2,
              Pack<float, 2>{{sum[r][c].at[2 * h], sum[r][c].at[2 * h + 1]}});
    }
  }
}

}  // namespace gyr::cuda::groups
