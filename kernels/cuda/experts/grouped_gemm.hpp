// SPDX-License-Identifier: BSD-3-Clause
// A block's tile of a product of bf16, by tensor cores.
#pragma once

#include "kernels/cuda/machine/tile_pipeline.hpp"

namespace gyr::cuda::groups {

// An operand of a block's product: `own` are the rows of the output, or its columns, `along` is what is summed over, up to their ends. By rows:
// x(own, along), else x(along, own). Tiles lie in shared memory as in x, in rows that are 16 bytes longer: eight of them touch every bank once.
template <bool by_rows, int extent, int depth>
struct Operand {
  static constexpr int rows = by_rows ? extent : depth, columns = by_rows ? depth : extent;
  static constexpr int stride = columns + 8, bytes = rows * stride * int(sizeof(bf16));
  static constexpr int threads = 128;  // that bring it

  Global<const bf16> x;
  Index own, own_end, along, along_end;

  // Tile number `step`, zeros behind the ends; packs: of rows that begin where packs do.
  template <bool packs>
  GYR_DEVICE void load_tile(int step, const Shared<bf16>& to) const {
    const Index deep = along + Index(step) * depth;
    const Index row = by_rows ? own : deep, column = by_rows ? deep : own;
    const Index rows_left = (by_rows ? own_end : along_end) - row, columns_left = (by_rows ? along_end : own_end) - column;
    if constexpr (packs) {
      constexpr int across = columns / 8, at_once = threads / across;
      static_assert(threads % across == 0 && rows % at_once == 0);
      // Eight lanes, which write at a time, have all banks: of rows of 64 bytes two that are four apart.
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
  // Fragments of rows [o, o + 16) of the left operand, and of two neighbours of eight columns from o on of the right one, that are summed over
  // [k, k + 16).
  GYR_DEVICE static FragmentA left(const Shared<bf16>& tile, int o, int k) {
    if constexpr (by_rows) return load_matrix_x4(tile.at((o + lane() % 16) * stride + k + lane() / 16 * 8));
    else return load_matrix_x4_transposed(tile.at((k + lane() / 16 * 8 + lane() % 8) * stride + o + lane() / 8 % 2 * 8));
  }
  GYR_DEVICE static FragmentA right(const Shared<bf16>& tile, int o, int k) {
    if constexpr (by_rows) return load_matrix_x4(tile.at((o + lane() / 16 * 8 + lane() % 8) * stride + k + lane() / 8 % 2 * 8));
    else return load_matrix_x4_transposed(tile.at((k + lane() % 16) * stride + o + lane() / 16 * 8));
  }
};

// A block's tile of an output and how its warps share it: `across` of them beside each other.
template <int rows_, int columns_, int depth_, int across_>
struct Tile {
  static constexpr int threads = 128, blocks = 2;  // that an SM shall take
  static constexpr bool exists = true;             // in code of this architecture
  static constexpr int rows = rows_, columns = columns_, depth = depth_, across = across_, stages = 4;
  static constexpr int warp_rows = rows / (threads / warp_size / across), warp_columns = columns / across;
  template <bool left_by_rows, bool right_by_rows>
  static constexpr int shared_bytes = stages*(Operand<left_by_rows, rows, depth>::bytes + Operand<right_by_rows, columns, depth>::bytes);
};
using LargeTile = Tile<128, 128, 32, 2>;
using FewRows = Tile<16, 64, 64, 4>;  // rows of a group are few: what counts is how fast matrices come

// store(row, column, two neighbours) of what left times right' is, within the tile. Warps all of whose rows are behind the end multiply nothing.
template <bool packs, class Tile, bool left_by_rows, bool right_by_rows, class Store>
GYR_DEVICE void multiply(Tile, const Operand<left_by_rows, Tile::rows, Tile::depth>& left,
                         const Operand<right_by_rows, Tile::columns, Tile::depth>& right, const Store& store) {
  using Left = Operand<left_by_rows, Tile::rows, Tile::depth>;
  using Right = Operand<right_by_rows, Tile::columns, Tile::depth>;
  constexpr int R = Tile::warp_rows / 16, C = Tile::warp_columns / 8;
  const int row = warp() / Tile::across * Tile::warp_rows, column = warp() % Tile::across * Tile::warp_columns;
  const bool works = left.own + row < left.own_end;
  const auto left_tile = [](int place) { return Shared<bf16>(place * Left::bytes); };
  const auto right_tile = [](int place) { return Shared<bf16>(Tile::stages * Left::bytes + place * Right::bytes); };
  FragmentD sum[R][C] = {};
  pipeline<Tile::stages>(
      int(ceil_div(left.along_end - left.along, Tile::depth)),
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
        store(left.own + row + 16 * r + 8 * h + lane() / 4, right.own + column + 8 * c + lane() % 4 * 2,
              Pack<float, 2>{{sum[r][c].at[2 * h], sum[r][c].at[2 * h + 1]}});
    }
  }
}

}  // namespace gyr::cuda::groups
