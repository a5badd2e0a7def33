// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/run_plan.hpp"

#include <algorithm>

#include "src/train/engine_config.hpp"

namespace gyr {

RunPlan::RunPlan(RunConfig r, int number) : run(std::move(r)), layout(layout_of(run, number)), config(engine_config(run, layout)) {
  for (int position = 0; position < layout.ranks(); ++position)
    if (layout.coordinate(position, Axis::data) == 0) ranks.push_back(plan_rank(config, layout, position));
}

const RankPlan& RunPlan::of(int position) const {
  const int first = layout.position_at([&](Axis a) { return a == Axis::data ? 0 : layout.coordinate(position, a); });
  return *std::lower_bound(ranks.begin(), ranks.end(), first, [](const RankPlan& plan, int wanted) { return plan.position < wanted; });
}

const RankPlan& RunPlan::largest_rank() const {
  return *std::max_element(ranks.begin(), ranks.end(), [](const RankPlan& a, const RankPlan& b) { return a.capacity.total() < b.capacity.total(); });
}

const RankPlan& RunPlan::slowest() const {
  return *std::max_element(ranks.begin(), ranks.end(), [](const RankPlan& a, const RankPlan& b) { return a.flops < b.flops; });
}

}  // namespace gyr
