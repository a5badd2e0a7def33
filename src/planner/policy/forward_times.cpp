// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/policy/forward_times.hpp"

#include <algorithm>
#include <numeric>

namespace gyr {

ForwardTimes::ForwardTimes(EngineConfig config, const LayoutOnMesh& place, const PassMachine& machine, StageRuns* shared) {
  config.training = false, config.micros = 1;
  StageRuns local;
  StageRuns& runs = shared ? *shared : local;
  for (int stage = 0; stage < place.layout.size(Axis::pipeline); ++stage) {
    PassTime time;
    Capacity most;
    for (const int position : positions_of(place.layout, stage)) {
      const std::shared_ptr<const StageRun> run = runs.of(config, place.layout, position);
      const RankPlan& plan = run->plan;
      time = slower(time, pass_time(plan.launches, plan.traffic, place, position, config.precision, PassKind::prefill, machine));
      if (plan.capacity.total() > most.total()) most = plan.capacity;
    }
    stages_.push_back(time.work + time.message), capacities_.push_back(most);
  }
}

double ForwardTimes::seconds(Index micros) const {
  return std::accumulate(stages_.begin(), stages_.end(), 0.0) + double(micros - 1) * *std::max_element(stages_.begin(), stages_.end());
}

}  // namespace gyr
