// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/part_run.hpp"

#include <algorithm>
#include <numeric>

#include "src/config/layout_rules.hpp"
#include "src/train/engine_config.hpp"

namespace gyr {

LayerTypes::LayerTypes(const ModelConfig& model) {
  std::map<std::pair<bool, char>, int> known;
  for (Index layer = 0; layer < model.layers(); ++layer) {
    const char symbol = model.pattern[std::size_t(layer)];
    const auto [type, fresh] = known.try_emplace({layer < layers_of_encoder(model), symbol}, int(pattern_.size()));
    if (fresh) pattern_ += symbol;
    of_layer_.push_back(type->second);
  }
}

PartRuns::PartRuns(const RunConfig& run, const Cluster& cluster, const Profile* profile)
    : run_(run), cluster_(cluster), profile_(profile), types_(run.model) {}

const PartRun& PartRuns::of(const LayoutChoice& c, bool split) {
  const std::string key = fmt::format("t{} a{} c{} {} e{} s{} b{} r{} {}", c.tensor, c.attention_ranks, c.context, int(c.context_mode), c.expert,
                                      c.sequence, c.micro_batch_size, c.recompute, split);
  const auto known = runs_.find(key);
  return known != runs_.end() ? known->second : runs_.emplace(key, counted(c, split)).first->second;
}

// Weights are cut among replicas, so that each part is a task of its own.
PartRun PartRuns::counted(const LayoutChoice& choice, bool split) {
  LayoutChoice c = choice;
  c.pipeline = c.virtual_stages = 1, c.shard = Shard::weights;
  c.data = std::max(2, c.expert / std::gcd(c.expert, c.context));
  RunConfig run = with(run_, c);
  run.model.pattern = types_.pattern();
  run.parallel.layers.clear(), run.parallel.permutation.clear(), run.parallel.islands.clear();
  run.train.ramp.clear(), run.train.global_batch_size = c.data * c.micro_batch_size;
  const Layout layout = layout_by_rules(run, c.data * c.context * c.tensor);
  EngineConfig config = engine_config(run, layout);
  config.schedule = split ? zero_bubble : one_f_one_b;
  PartRun parts;
  for (const int position : positions_of(layout, 0)) parts.ranks.push_back(counted_on(config, layout, position));
  return parts;
}

PartsOfRank PartRuns::counted_on(const EngineConfig& config, const Layout& layout, int position) {
  const RankPlan plan = plan_rank(config, layout, position, {}, &known_);
  const Program program = compile(config.schedule, pipeline_shape(layout, 1), 0, plan.buckets);
  PartsOfRank rank{layout.coordinate(position, Axis::tensor), layout.coordinate(position, Axis::context), {}, {}};
  rank.parts.resize(std::size_t(types_.count()) + 2);
  for (const CommunicatorTraffic& c : plan.traffic) rank.communicators.push_back(c.name);
  Index alive = 0;
  for (std::size_t i = 0; i < plan.tasks.of_task.size(); ++i) {
    const Task& task = program.tasks[i];
    if (task.op != Op::forward && task.op != Op::backward && task.op != Op::backward_input && task.op != Op::backward_weights) continue;
    ensure(task.parts.size() == 1, "a task of {} parts is counted as one of a part", task.parts.size());
    const TaskCount& count = plan.tasks.counts[std::size_t(plan.tasks.of_task[i])];
    Part& part = rank.parts.at(std::size_t(task.parts.first));
    PartCount& into = task.op == Op::forward ? part.forward : task.op == Op::backward_weights ? part.backward_weights : part.backward_input;
    into.compute = seconds_of(count.launches, config.precision, cluster_, profile_);
    if (!profile_) into.floor = floor_of(count.launches, config.precision, cluster_);
    for (std::size_t c = 0; c < count.traffic.size(); ++c)
      for (const TrafficCount::Line& line : count.traffic[c].lines())
        if (line.traffic.calls > 0) into.transfers.emplace_back(int(c), line);
    if (task.op == Op::forward) part.kept = std::max<Index>(0, count.alive.behind - std::exchange(alive, count.alive.behind));
  }
  rank.parts.front().kept = rank.parts.back().kept = 0;  // of the first and the last part it also counts what comes in
  return rank;
}

}  // namespace gyr
