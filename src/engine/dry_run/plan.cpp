// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/dry_run/plan.hpp"

#include <algorithm>
#include <utility>

#include "src/engine/dry_run/dry_step.hpp"

namespace gyr {

std::vector<CommunicatorTraffic> traffic_of(Grid& grid) {
  std::vector<CommunicatorTraffic> list;
  grid.visit([&](Communicator& c) { list.push_back({c.name(), c.size(), c.traffic()}); });
  return list;
}

namespace {

// Runs one step as a dry run and reads its counts.
RankPlan dry_run_of(const EngineConfig& config, const Layout& layout, int position, const std::function<void()>& beat, KnownGemms* known) {
  DryStep step(config, layout, position, beat, known);
  Engine& engine = step.engine();
  RankPlan plan{position,
                {},
                0,
                engine.device().flops(),
                engine.device().work(),
                traffic_of(step.grid()),
                {},
                std::exchange(engine.device().gemm_counts, {}),
                std::exchange(engine.device().launch_counts, {}),
                engine.take_task_counts(),
                engine.buckets()};
  if (config.training) step.evaluate(1);  // validation needs memory too
  plan.capacity = engine.measured();
  plan.memory = memory_lines(engine);
  for (const auto& p : engine.stage().parameters().all()) plan.parameters += p->size();
  return plan;
}

// Extrapolation: plan += times * (more - plan).
void extend(RankPlan& plan, const RankPlan& more, Index times) {
  const auto grow = [&](auto& x, auto y) { x += (y - x) * times; };
  grow(plan.flops, more.flops);
  for (std::size_t i = 0; i < plan.work.size(); ++i) {
    grow(plan.work[i].calls, more.work[i].calls);
    grow(plan.work[i].flops, more.work[i].flops);
    grow(plan.work[i].bytes, more.work[i].bytes);
  }
  for (std::size_t c = 0; c < plan.traffic.size(); ++c) plan.traffic[c].count.add(more.traffic[c].count.since(plan.traffic[c].count), times);
}

constexpr int max_executed_micros = 4096;  // largest number of micro-batches for which a full step is executed in the dry run

// Programs of very many micro-batches are extrapolated: in a full pipeline every group of micro-batches, one per stage,
// costs the same.
RankPlan plan_with_counts(const EngineConfig& config, const Layout& layout, int position, const std::function<void()>& beat, KnownGemms* known) {
  if (config.micros <= max_executed_micros) return dry_run_of(config, layout, position, beat, known);
  const int group = layout.size(Axis::pipeline);
  EngineConfig shorter = config;
  shorter.micros = std::max(1, max_executed_micros / group) * group + config.micros % group;
  RankPlan plan = dry_run_of(shorter, layout, position, beat, known);
  const int groups_left = (config.micros - shorter.micros) / group;
  shorter.micros += group;
  extend(plan, dry_run_of(shorter, layout, position, beat, known), groups_left);
  return plan;
}

}  // namespace

bool plans_foreign_gpu(const EngineConfig& config) { return !backend::on_gpu() && config.planned_gpu.value_or(false); }

EngineConfig counted_config(const EngineConfig& config) {
  EngineConfig own = config;
  if (plans_foreign_gpu(config)) own.planned_gpu.reset();
  return own;
}

void take_memory(TaskCounts& counts, const TaskCounts& on_gpu) {
  for (std::size_t i = 0; i < counts.counts.size(); ++i) counts.counts[i].alive = on_gpu.counts.at(i).alive;
}

RankPlan plan_rank(const EngineConfig& config, const Layout& layout, int position, const std::function<void()>& beat, KnownGemms* known) {
  RankPlan plan = plan_with_counts(counted_config(config), layout, position, beat, known);
  if (!plans_foreign_gpu(config)) return plan;
  RankPlan on_gpu = plan_with_counts(config, layout, position, beat, known);
  plan.capacity = std::move(on_gpu.capacity), plan.memory = std::move(on_gpu.memory);
  take_memory(plan.tasks, on_gpu.tasks);
  return plan;
}

}  // namespace gyr
