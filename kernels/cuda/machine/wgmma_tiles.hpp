// SPDX-License-Identifier: BSD-3-Clause
// Tiles of bf16 in shared memory in wgmma's 128-byte swizzled layout, and GEMMs of such tiles.
#pragma once

#include "kernels/cuda/machine/wgmma.hpp"

namespace gyr::cuda {

// Tile of W columns, stored as parts of 64 columns. Each part is a column of swizzle atoms with 8 rows of 128 bytes. A
// tile starts at a multiple of 1024 bytes.
template <int W, int rows>
class GroupTile {
 public:
  static constexpr int part = rows * 64, bytes = rows * W * int(sizeof(bf16));
  static_assert(W % 64 == 0 && rows % 8 == 0);

  GYR_DEVICE explicit GroupTile(int first_byte) : elements_(first_byte) {}
  // Address of columns [8 c, 8 c + 8) of a row.
  GYR_DEVICE bf16* pack(int row, int c) const { return elements_.at(c / 8 * part + swizzled_place(row, c % 8)); }
  // Descriptor of the tile as a wgmma operand. by_rows: K-major, from `row` on, a multiple of 8. by_columns: N-major.
  GYR_DEVICE MatrixDescriptor by_rows(int row = 0) const { return place_of(elements_.at(row * 64), pack_bytes, square); }
  GYR_DEVICE MatrixDescriptor by_columns() const { return place_of(elements_.at(0), part * int(sizeof(bf16)), square); }
  // Byte offset from the start of a descriptor's matrix to column or row `at`, a multiple of 16.
  GYR_FUNCTION static constexpr int to_column(int at) { return (at / 64 * part + at % 64) * int(sizeof(bf16)); }
  GYR_FUNCTION static constexpr int to_row(int at) { return at * 128; }

 private:
  static constexpr int square = 1024;
  Shared<bf16> elements_;
};

// Issues cp.async copies of rows [first, first + rows) and columns [column, column + width) of x into a tile, from tile
// row `to` on. `threads` threads take part, and this one has index t. Elements beyond row `end` or the last column
// become zero.
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

// Issues the wgmmas of d (64, 8 F) = a (64, W) b (8 F, W)'. A, B: types of the tiles that contain a and b, both
// K-major.
template <int W, class A, class B, int F>
GYR_DEVICE void multiply_rows(const MatrixDescriptor& a, const MatrixDescriptor& b, FragmentD (&d)[F]) {
  issue_wgmma<false, Major::rows>(d, a, b);
  GYR_UNROLL
  for (int c = 16; c < W; c += 16) issue_wgmma<true, Major::rows>(d, moved(a, A::to_column(c)), moved(b, B::to_column(c)));
}

// Issues the wgmmas of d (64, 8 F) += a (64, 16 K) b (16 K, 8 F). B: type of the tile that contains b, N-major.
template <class B, int K, int F>
GYR_DEVICE void add_columns(const FragmentA (&a)[K], const MatrixDescriptor& b, FragmentD (&d)[F]) {
  GYR_UNROLL
  for (int k = 0; k < K; ++k) issue_wgmma<true, Major::columns>(d, a[k], moved(b, B::to_row(16 * k)));
}

// Rounds the accumulators of a GEMM to bf16, as the left operand of the next GEMM.
template <int F>
GYR_DEVICE void round(const FragmentD (&d)[F], FragmentA (&a)[F / 2]) {
  GYR_UNROLL
  for (int j = 0; j < F / 2; ++j) {
    const FragmentD &one = d[2 * j], &two = d[2 * j + 1];
    a[j] = {{pair(one.at[0], one.at[1]), pair(one.at[2], one.at[3]), pair(two.at[0], two.at[1]), pair(two.at[2], two.at[3])}};
  }
}

}  // namespace gyr::cuda
