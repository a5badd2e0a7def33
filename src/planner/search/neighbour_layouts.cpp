// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/search/neighbour_layouts.hpp"

#include <array>

namespace gyr {

namespace {

std::array<int, 4> grid_of(const LayoutChoice& c) { return {c.data, c.pipeline, c.context, c.tensor}; }

// True if one axis is twice as long as before, one half as long, and the others are equal.
bool moves_factor(const std::array<int, 4>& a, const std::array<int, 4>& b) {
  int halved = 0, doubled = 0, equal = 0;
  for (std::size_t i = 0; i < a.size(); ++i) halved += b[i] * 2 == a[i], doubled += a[i] * 2 == b[i], equal += a[i] == b[i];
  return halved == 1 && doubled == 1 && equal == 2;
}

// Number of settings of the shape beside the grid that differ. A setting counts only if both grids have a choice.
int different_settings(const LayoutChoice& a, const LayoutChoice& b) {
  const bool stages = a.pipeline > 1 && b.pipeline > 1, contexts = a.context > 1 && b.context > 1, tensors = a.tensor > 1 && b.tensor > 1;
  return (a.micro_batch_size != b.micro_batch_size) + (a.expert != b.expert) + (stages && a.virtual_stages != b.virtual_stages) +
         (contexts && a.context_mode != b.context_mode) + (tensors && (a.sequence != b.sequence || a.attention_ranks != b.attention_ranks));
}

int different_variants(const LayoutChoice& a, const LayoutChoice& b) {
  return (a.schedule != b.schedule) + (a.recompute != b.recompute) + (a.shard != b.shard);
}

}  // namespace

std::vector<LayoutChoice> neighbours_of(const RunConfig& run, const LayoutChoice& from, const std::vector<LayoutChoice>& shapes) {
  std::vector<LayoutChoice> found;
  const std::array<int, 4> grid = grid_of(from);
  for (const LayoutChoice& shape : shapes) {
    const int settings = different_settings(from, shape);
    const bool same_grid = grid_of(shape) == grid;
    if (settings > int(same_grid) || (!same_grid && !moves_factor(grid, grid_of(shape)))) continue;
    const int steps = same_grid && settings == 0 ? 1 : 0;  // the shape itself: another schedule, recomputation or sharding level
    for (const LayoutChoice& c : variants_of(run, shape))
      if (different_variants(from, c) == steps) found.push_back(c);
  }
  return found;
}

}  // namespace gyr
