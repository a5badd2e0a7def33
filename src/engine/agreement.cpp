// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/agreement.hpp"

#include <algorithm>

namespace gyr {

Agreed agree_over(Communicator& ranks, const Agreed& mine) {
  const double local[] = {mine.sum, mine.stop_request, mine.not_finite, mine.expert_load};
  const std::vector<double> all = ranks.gather(local);
  Agreed agreed;
  for (std::size_t i = 0; i < all.size(); i += std::size(local))
    agreed = {agreed.sum + all[i], std::max(agreed.stop_request, all[i + 1]), std::max(agreed.not_finite, all[i + 2]),
              std::max(agreed.expert_load, all[i + 3])};
  return agreed;
}

Agreed agree_in_replica(Grid& grid, const Agreed& mine) {
  if (grid.is_dry_run()) return mine;
  const Agreed replica = agree_over(grid.group(Axis::pipeline), agree_over(grid.tensor().whole(), mine));
  if (grid.layout().cut() != Shard::none) return agree_over(grid.group(token_axes), replica);
  return grid.experts() ? agree_over(*grid.experts(), replica) : replica;
}

Agreed agree_from_last_stage(Grid& grid, const Agreed& mine) {
  if (grid.is_dry_run()) return mine;
  const Agreed replicas = agree_over(grid.group(token_axes), mine);
  const bool last = grid.coordinate(Axis::pipeline) == grid.group(Axis::pipeline).size() - 1;
  return agree_over(grid.group(Axis::pipeline), {last ? replicas.sum : 0, replicas.stop_request, replicas.not_finite, replicas.expert_load});
}

}  // namespace gyr
