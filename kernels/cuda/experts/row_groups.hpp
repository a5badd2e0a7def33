// SPDX-License-Identifier: BSD-3-Clause
// Rows in groups (experts) whose counts are in device memory. Each block searches for its own rows, so that no grid
// depends on the counts.
#pragma once

#include <numeric>

#include "kernels/cuda/machine/launch.hpp"
#include "kernels/ops/grouped_gemm.hpp"

namespace gyr::cuda::groups {

inline constexpr int most_groups = 256;  // maximum number of groups per launch, since their matrices are kernel arguments

// Matrices of the groups [first, first + number). All have the same rows and columns.
template <class T>
struct Matrices {
  T* at[most_groups];
  Index rows, columns;
  int first, number;

  GYR_DEVICE Global<T> operator[](int i) const { return Global<T>(Matrix<T>(at[i], rows, columns, columns)); }
};

// Rows [first, end) of a group, which is numbered within the launch.
struct Rows {
  int group;
  Index first, end;
};

// Number of rows in all groups before this one.
GYR_DEVICE Index rows_before(const Global<const std::int32_t>& count, int group) {
  Index sum = 0;
  for (int g = lane(); g < group; g += warp_size) sum += count.load(g);
  return warp_sum(sum);
}

// Finds the t-th tile of tile_rows rows, counted group by group over the launch's groups. The last tile of each group
// may be shorter. Returns an empty range beyond the last tile. Every warp does the search, and each lane counts the
// tiles of some adjacent groups.
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
  const std::uint32_t later_groups = ballot(tiles_to_here > t);
  if (later_groups == 0) return {0, 0, 0};
  int group = mine, left = t - (tiles_to_here - tiles), first = rows_to_here - rows, n = 0;
  if (lane() == lowest_bit(later_groups))
    for (;; ++group, first += n) {
      n = count.load(w.first + group);
      if (left < tiles_of(n)) break;
      left -= tiles_of(n);
    }
  const int from = lowest_bit(later_groups);
  group = shuffle(group, from), left = shuffle(left, from), first = shuffle(first, from), n = shuffle(n, from);
  const Index begin = rows_before(count, w.first) + first;
  const Index row = begin + left * tile_rows;
  return {group, row, row + tile_rows < begin + n ? row + tile_rows : begin + n};
}

// Calls body(matrices) for at most most_groups groups at a time, the limit of one launch.
template <class T, class Body>
void each_launch(const GroupMatrices<T>& all, const Body& body) {
  const Index count = Index(all.data.size());
  for (Index first = 0; first < count; first += most_groups) {
    Matrices<T> some{{}, all.rows, all.columns, int(first), int(std::min<Index>(most_groups, count - first))};
    std::copy_n(all.data.begin() + first, some.number, some.at);
    body(some);
  }
}

// Upper bound on the number of tiles of tile_rows rows, for `rows` rows in `groups` groups.
inline Index most_tiles(Index tile_rows, Index rows, Index groups) { return (rows + std::min(rows, groups) * (tile_rows - 1)) / tile_rows; }

// Number of rows that belong to a group. If the host does not know the counts, all rows are assumed to.
inline Index used_rows(const RowGroups& groups, Index rows) {
  return groups.known.empty() ? rows : std::accumulate(groups.known.begin(), groups.known.end(), Index(0));
}

}  // namespace gyr::cuda::groups
