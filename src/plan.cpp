// SPDX-License-Identifier: BSD-3-Clause
#include "src/plan.hpp"

namespace gyr {

std::vector<CommunicatorTraffic> traffic_of(Grid& grid) {
  std::vector<CommunicatorTraffic> list;
  grid.visit([&](Communicator& c) {
    CommunicatorTraffic entry{c.name(), c.size(), {}};
    for (int op = 0; op < operations; ++op) entry.by_operation[op] = c.traffic(Operation(op));
    list.push_back(std::move(entry));
  });
  return list;
}

template <class T>
RankPlan plan_rank(const EngineConfig& config, const Layout& layout, int position) {
  Grid grid = Grid::ghost(layout, position);
  Timers timers(engine_timer_names());
  Engine<T> engine(config, grid, nullptr, timers);
  engine.initialise(0);
  const Index rows = config.micro_batch * config.length;
  const MicroBatch batch{config.micro_batch, config.length, std::vector<Token>(rows), std::vector<Token>(rows)};
  engine.device().clear_work();
  const auto source = [&](int) { return batch; };
  if (config.training) engine.train(source, config.micros, 1, 0);
  else engine.evaluate(source, config.micros);
  RankPlan plan{position, engine.measured(), 0, engine.device().flops(), engine.device().work(), traffic_of(grid)};
  for (const auto& p : engine.stage().parameters().all()) plan.parameters += p->size();
  return plan;
}

template RankPlan plan_rank<double>(const EngineConfig&, const Layout&, int);
template RankPlan plan_rank<float>(const EngineConfig&, const Layout&, int);
template RankPlan plan_rank<bf16>(const EngineConfig&, const Layout&, int);

}  // namespace gyr
