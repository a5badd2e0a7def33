// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/plan.hpp"

#include <algorithm>

namespace gyr {

std::vector<CommunicatorTraffic> traffic_of(Grid& grid) {
  std::vector<CommunicatorTraffic> list;
  grid.visit([&](Communicator& c) { list.push_back({c.name(), c.size(), c.traffic()}); });
  return list;
}

namespace {

// Sees every layer pass, and lets the plan be interrupted there.
class Pulse : public Hook {
 public:
  explicit Pulse(const std::function<void()>& beat) : beat_(beat) {}
  void micro_batch(int) override {}
  void observe(Observed, const std::string&, const AnyMatrix&, Index, Index, std::span<const Held>) override { beat_(); }
  void gradients_are_whole() override { beat_(); }

 private:
  const std::function<void()>& beat_;
};

// One step, read off.
RankPlan dry_run_of(const EngineConfig& config, const Layout& layout, int position, const std::function<void()>& beat, KnownProducts* known) {
  Grid grid = Grid::dry_run(layout, position);
  Timers timers(engine_timer_names());
  Engine engine(config, grid, nullptr, timers);
  if (known) engine.device().products = *known;
  Pulse pulse(beat);
  if (beat) engine.stage().set_hook(&pulse);
  engine.initialise(0);
  engine.device().clear_work();
  engine.device().launch_counts.clear();
  const auto source = [&](int) {
    MicroBatch shape{config.micro_batch_size, config.seq_length, {}, {}};
    shape.source_length = config.source_length;
    return shape;
  };
  Scores unread;  // what validation tells takes memory too
  if (config.training) engine.train(source, config.micros, 1, 0);
  else engine.evaluate(source, config.micros, &unread);
  RankPlan plan{position,
                {},
                0,
                engine.device().flops(),
                engine.device().work(),
                traffic_of(grid),
                {},
                engine.device().product_counts,
                engine.device().launch_counts,
                engine.task_counts(),
                engine.buckets()};
  if (config.training) engine.evaluate(source, 1, &unread);  // for its memory
  plan.capacity = engine.measured();
  plan.memory = memory_lines(engine);
  for (const auto& p : engine.stage().parameters().all()) plan.parameters += p->size();
  if (known) *known = engine.device().products;
  return plan;
}

// plan += times * (more - plan)
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

constexpr int most_walked = 4096;  // micro-batches of a program that is walked to its end

}  // namespace

// Programs of more micro-batches than anybody schedules are not walked: from one group of them to the next a full pipeline does the same.
RankPlan plan_rank(const EngineConfig& config, const Layout& layout, int position, const std::function<void()>& beat, KnownProducts* known) {
  if (config.micros <= most_walked) return dry_run_of(config, layout, position, beat, known);
  const int group = layout.size(Axis::pipeline);
  EngineConfig shorter = config;
  shorter.micros = std::max(1, most_walked / group) * group + config.micros % group;
  RankPlan plan = dry_run_of(shorter, layout, position, beat, known);
  const int groups_left = (config.micros - shorter.micros) / group;
  shorter.micros += group;
  extend(plan, dry_run_of(shorter, layout, position, beat, known), groups_left);
  return plan;
}

}  // namespace gyr
