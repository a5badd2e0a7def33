// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/step/agreement.hpp"

#include <algorithm>

namespace gyr {

Agreed agree_over(Communicator& ranks, const Agreed& mine) {
  std::vector<double> local{mine.stop_request, mine.not_finite, mine.expert_load, mine.dropped};
  const std::size_t shared = local.size();
  local.insert(local.end(), mine.sums.begin(), mine.sums.end());
  const std::vector<double> all = ranks.gather(local);
  Agreed agreed{std::vector<double>(mine.sums.size(), 0.0)};
  for (std::size_t i = 0; i < all.size(); i += local.size()) {
    agreed.stop_request = std::max(agreed.stop_request, all[i]), agreed.not_finite = std::max(agreed.not_finite, all[i + 1]);
    agreed.expert_load = std::max(agreed.expert_load, all[i + 2]), agreed.dropped += all[i + 3];
    for (std::size_t k = 0; k < agreed.sums.size(); ++k) agreed.sums[k] += all[i + shared + k];
  }
  return agreed;
}

Agreed agree_in_replica(Grid& grid, const Agreed& mine) {
  if (grid.is_dry_run()) return mine;
  const Agreed replica = agree_over(grid.group(Axis::pipeline), agree_over(grid.tensor().full(), mine));
  if (grid.layout().zero_shard() != Shard::none) return agree_over(grid.group(token_axes), replica);
  return grid.experts() ? agree_over(*grid.experts(), replica) : replica;
}

Agreed agree_from_last_stage(Grid& grid, const Agreed& mine) {
  if (grid.is_dry_run()) return mine;
  Agreed replicas = agree_over(grid.group(token_axes), mine);
  const bool last = grid.coordinate(Axis::pipeline) == grid.group(Axis::pipeline).size() - 1;
  if (!last) replicas.sums.assign(replicas.sums.size(), 0);
  return agree_over(grid.group(Axis::pipeline), replicas);
}

}  // namespace gyr
