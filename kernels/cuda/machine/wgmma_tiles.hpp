// SPDX-License-Identifier: BSD-3-Clause
// Tiles of bf16 in shared memory, and products of them by warpgroups.
#pragma once

#include "kernels/cuda/machine/wgmma.hpp"

namespace gyr::cuda {

// W columns, in parts of 64, each of them squares of 8 rows of 128 bytes, one above the other. It begins on a multiple of 1024 bytes.
template <int W, int rows>
class GroupTile {
 public:
  static constexpr int part = rows * 64, bytes = rows * W * int(sizeof(bf16));
  static_assert(W % 64 == 0 && rows % 8 == 0);

  GYR_DEVICE explicit GroupTile(int first_byte) : numbers_(first_byte) {}
  // Where columns [8 c, 8 c + 8) of a row lie.
  GYR_DEVICE bf16* pack(int row, int c) const { return numbers_.at(c / 8 * part + swizzled_place(row, c % 8)); }
  // As an operand from a row on, which eight divides: summed along its columns, or over its rows.
  GYR_DEVICE MatrixDescriptor by_rows(int row = 0) const { return place_of(numbers_.at(row * 64), pack_bytes, square); }
  GYR_DEVICE MatrixDescriptor by_columns() const { return place_of(numbers_.at(0), part * int(sizeof(bf16)), square); }
  // From there to column or row `at`, which 16 divides.
  GYR_FUNCTION static constexpr int to_column(int at) { return (at / 64 * part + at % 64) * int(sizeof(bf16)); }
  GYR_FUNCTION static constexpr int to_row(int at) { return at * 128; }

 private:
  static constexpr int square = 1024;
  Shared<bf16> numbers_;
};

// Rows [first, first + rows) of columns [column, column + width) of x on their way to a tile, from its row `to` on, by `threads` threads, of which
// this one is number t; zeros behind row `end` and the last column.
template <int rows, int threads, int W, int R>
GYR_DEVICE void fetch(const Global<const bf16>& x, Index first, Index end, Index column, Index width, const GroupTile<W, R>& tile, int to, int t) {
  constexpr int packs = W / 8, at_once = threads / packs;
  static_assert(threads % packs == 0 && rows % at_once == 0);
  const int c = t % packs, mine = t / packs;
  const bool there = c * 8 < width;
  const auto copy = [&](const auto& wanted) {
    Strip<const bf16, 8> strip(x, first + mine, column + c * 8);
    GYR_UNROLL_BY(8)
    for (int r = 0; r < rows; r += at_once, strip.move_down(at_once)) strip.copy_inside(0, tile.pack(to + mine + r, c), wanted(r));
  };
  if (there && first + rows <= end) copy([](int) { return true; });
  else copy([&, count = there && first + mine < end ? int(end - first) - mine : 0](int r) { return r < count; });
}

// d (64, 8 F) = a (64, W) b (8 F, W)', told.   A, B: the tiles of which a and b are, by rows
template <int W, class A, class B, int F>
GYR_DEVICE void multiply_rows(const MatrixDescriptor& a, const MatrixDescriptor& b, FragmentD (&d)[F]) {
  issue_wgmma<false, Major::rows>(d, a, b);
  GYR_UNROLL
  for (int c = 16; c < W; c += 16) issue_wgmma<true, Major::rows>(d, moved(a, A::to_column(c)), moved(b, B::to_column(c)));
}

// d (64, 8 F) += a (64, 16 K) b (16 K, 8 F), told.   B: the tile of which b is, by columns
template <class B, int K, int F>
GYR_DEVICE void add_columns(const FragmentA (&a)[K], const MatrixDescriptor& b, FragmentD (&d)[F]) {
  GYR_UNROLL
  for (int k = 0; k < K; ++k) issue_wgmma<true, Major::columns>(d, a[k], moved(b, B::to_row(16 * k)));
}

// What a product left, as the left operand of the next one.
template <int F>
GYR_DEVICE void round(const FragmentD (&d)[F], FragmentA (&a)[F / 2]) {
  GYR_UNROLL
  for (int j = 0; j < F / 2; ++j) {
    const FragmentD &one = d[2 * j], &two = d[2 * j + 1];
    a[j] = {{pair(one.at[0], one.at[1]), pair(one.at[2], one.at[3]), pair(two.at[0], two.at[1]), pair(two.at[2], two.at[3])}};
  }
}

}  // namespace gyr::cuda
