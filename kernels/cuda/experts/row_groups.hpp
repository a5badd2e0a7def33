// SPDX-License-Identifier: BSD-3-Clause
// Rows that come in groups whose counts lie on the device: a block looks for the rows that are its own. No grid depends on the counts.
#pragma once

#include <numeric>

#include "kernels/cuda/machine/launch.hpp"
#include "kernels/ops/grouped_gemm.hpp"

namespace gyr::cuda::groups {

inline constexpr int most_groups = 256;  // of a launch, which is given their matrices as arguments

// Matrices of groups [first, first + number), rows and columns of each.
template <class T>
struct Matrices {
  T* at[most_groups];
  Index rows, columns;
  int first, number;

  GYR_DEVICE Global<T> operator[](int i) const { return Global<T>(Matrix<T>(at[i], rows, columns, columns)); }
};

// Rows [first, end) of group number `group` of a launch's.
struct Rows {
  int group;
  Index first, end;
};

// Rows before a group.
GYR_DEVICE Index rows_before(const Global<const std::int32_t>& count, int group) {
  Index sum = 0;
  for (int g = lane(); g < group; g += warp_size) sum += count.load(g);
  return warp_sum(sum);
}

// The t-th of all tiles of so many rows of the launch's groups, one group after the other; the last tile of each may be shorter. Empty behind the
// last one. Every warp looks for it: a lane knows how many tiles some neighbouring groups have.
template <int tile_rows, class T>
GYR_DEVICE Rows tile_of(const Global<const std::int32_t>& count, const Matrices<T>& w, int t) {
  const auto tiles_of = [](int rows) { return (rows + tile_rows - 1) / tile_rows; };
  const int each = (w.number + warp_size - 1) / warp_size, mine = lane() * each, end = mine + each < w.number ? mine + each : w.number;
  int tiles = 0, rows = 0;
  for (int g = mine; g < end; ++g) {
    const int n = count.load(w.first + g);
    tiles += tiles_of(n), rows += n;
  }
  const int tiles_to_here = sum_up_to_lane(tiles), rows_to_here = sum_up_to_lane(rows);
  const std::uint32_t behind = ballot(tiles_to_here > t);
  if (behind == 0) return {0, 0, 0};
  int group = mine, left = t - (tiles_to_here - tiles), first = rows_to_here - rows, n = 0;
  if (lane() == lowest_bit(behind))
    for (;; ++group, first += n) {
      n = count.load(w.first + group);
      if (left < tiles_of(n)) break;
      left -= tiles_of(n);
    }
  const int from = lowest_bit(behind);
  group = shuffle(group, from), left = shuffle(left, from), first = shuffle(first, from), n = shuffle(n, from);
  const Index begin = rows_before(count, w.first) + first;
  const Index row = begin + left * tile_rows;
  return {group, row, row + tile_rows < begin + n ? row + tile_rows : begin + n};
}

// body(matrices) for as many groups at a time as a launch takes.
template <class T, class Body>
void each_launch(const GroupMatrices<T>& all, const Body& body) {
  const Index count = Index(all.data.size());
  for (Index first = 0; first < count; first += most_groups) {
    Matrices<T> some{{}, all.rows, all.columns, int(first), int(std::min<Index>(most_groups, count - first))};
    std::copy_n(all.data.begin() + first, some.number, some.at);
    body(some);
  }
}

// As many tiles of so many rows as all rows can make in so many groups.
inline Index most_tiles(Index tile_rows, Index rows, Index groups) { return (rows + std::min(rows, groups) * (tile_rows - 1)) / tile_rows; }

// Rows that some group has: where the host does not know the counts, all of them.
inline Index used_rows(const RowGroups& groups, Index rows) {
  return groups.known.empty() ? rows : std::accumulate(groups.known.begin(), groups.known.end(), Index(0));
}

}  // namespace gyr::cuda::groups
