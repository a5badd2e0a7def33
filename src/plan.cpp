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

namespace {

// One ghost step of `config.micros` micro-batches, read off.
template <class T>
RankPlan ghost_step(const EngineConfig& config, const Layout& layout, int position) {
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

// plan += times * (more - plan), for what grows with the number of micro-batches.
void extend(RankPlan& plan, const RankPlan& more, Index times) {
  const auto grow = [&](auto& x, auto y) { x += (y - x) * times; };
  grow(plan.flops, more.flops);
  for (std::size_t i = 0; i < plan.work.size(); ++i) {
    grow(plan.work[i].calls, more.work[i].calls);
    grow(plan.work[i].flops, more.work[i].flops);
    grow(plan.work[i].bytes, more.work[i].bytes);
  }
  for (std::size_t c = 0; c < plan.traffic.size(); ++c)
    for (int op = 0; op < operations; ++op) {
      grow(plan.traffic[c].by_operation[op].calls, more.traffic[c].by_operation[op].calls);
      grow(plan.traffic[c].by_operation[op].bytes, more.traffic[c].by_operation[op].bytes);
    }
}

}  // namespace

// All micro-batches take the same, and memory grows no more once the pipeline is full: two short steps tell a long one exactly.
template <class T>
RankPlan plan_rank(const EngineConfig& config, const Layout& layout, int position) {
  const int full = layout.size("pipeline");
  if (config.micros <= full + 1) return ghost_step<T>(config, layout, position);
  EngineConfig short_step = config;
  short_step.micros = full;
  RankPlan plan = ghost_step<T>(short_step, layout, position);
  short_step.micros = full + 1;
  const RankPlan more = ghost_step<T>(short_step, layout, position);
  plan.capacity = more.capacity;
  extend(plan, more, config.micros - full);
  return plan;
}

template RankPlan plan_rank<double>(const EngineConfig&, const Layout&, int);
template RankPlan plan_rank<float>(const EngineConfig&, const Layout&, int);
template RankPlan plan_rank<bf16>(const EngineConfig&, const Layout&, int);

}  // namespace gyr
