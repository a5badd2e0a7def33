// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/prediction.hpp"

#include <algorithm>
#include <set>

namespace gyr {

namespace {

constexpr int micros_planned = 3;  // the first, the last, and one that stands for all between
constexpr int groups_walked = 4;   // of as many micro-batches as the pipeline has ranks; from one to the next a full pipeline does the same

EngineConfig with_micros(EngineConfig config, int micros) {
  config.micros = micros;
  return config;
}

// Positions of a stage that stand for all of it: both ends of the axes on which ranks share layers or sequences, and where these begin.
std::vector<int> positions_of(const Layout& layout, int stage) {
  std::set<int> positions;
  for (const bool last_tensor : {false, true})
    for (const bool last_context : {false, true})
      positions.insert(layout.position_at([&](Axis axis) {
        if (axis == Axis::pipeline) return stage;
        if (axis == Axis::tensor && last_tensor) return layout.size(Axis::tensor) - 1;
        if (axis == Axis::context && last_context) return layout.size(Axis::context) - 1;
        return 0;
      }));
  return {positions.begin(), positions.end()};
}

std::vector<Program> programs_of(const EngineConfig& config, const Layout& layout, const std::vector<BucketPlan>& buckets, int micros) {
  std::vector<Program> programs;
  for (int rank = 0; rank < layout.size(Axis::pipeline); ++rank)
    programs.push_back(compile(config.schedule, pipeline_shape(layout, micros), rank, buckets[rank]));
  return programs;
}

}  // namespace

StagePlans::StagePlans(const EngineConfig& config, const Layout& layout)
    : planned_(with_micros(config, std::min(config.micros, micros_planned))), layout_(layout) {
  for (int stage = 0; stage < layout.size(Axis::pipeline); ++stage) {
    std::vector<RankPlan>& plans = plans_[signature(stage)];
    if (!plans.empty()) continue;
    for (const int position : positions_of(layout, stage)) plans.push_back(plan_rank(planned_, layout, position));
  }
}

// Its layers, and whether it is at an end of the model.
std::string StagePlans::signature(int stage) const {
  const PipelineShape shape = pipeline_shape(layout_, 1);
  std::string text = stage == 0 ? "first" : stage == shape.ranks - 1 ? "last" : "";
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    const Span layers = layout_.stages[shape.stage(stage, chunk)];
    text += '|';
    text.append(planned_.model.pattern, std::size_t(layers.first), std::size_t(layers.size()));
  }
  return text;
}

std::vector<RankCosts> StagePlans::costs(const Cluster& cluster, const Profile* profile) const {
  std::vector<RankCosts> stages;
  for (int stage = 0; stage < layout_.size(Axis::pipeline); ++stage) {
    const std::vector<RankPlan>& plans = plans_.at(signature(stage));
    const std::vector<int> positions = positions_of(layout_, stage);
    for (std::size_t i = 0; i < plans.size(); ++i) {
      RankCosts costs(plans[i], planned_, layout_, positions[i], cluster, profile);
      if (i == 0) stages.push_back(std::move(costs));
      else stages.back().join(costs);
    }
  }
  return stages;
}

namespace {

struct Timed {
  Simulation simulation;
  std::vector<TaskCost> sums;  // of each rank
};

Timed time_of(const std::vector<RankCosts>& costs, const EngineConfig& config, const Layout& layout, int micros) {
  std::vector<BucketPlan> buckets;
  for (const RankCosts& rank : costs) buckets.push_back(rank.buckets());
  const std::vector<Program> programs = programs_of(config, layout, buckets, micros);
  std::vector<TaskTimes> times;
  Timed timed;
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    times.push_back(costs[rank].times_of(programs[rank]));
    timed.sums.push_back(costs[rank].sum_of(programs[rank]));
  }
  timed.simulation = timeline(programs, times);
  return timed;
}

Prediction prediction_of(const Timed& timed, double besides) {
  const Simulation& s = timed.simulation;
  const std::size_t longest = std::size_t(std::max_element(s.busy.begin(), s.busy.end()) - s.busy.begin());
  Prediction p;
  p.seconds = s.makespan, p.longest = int(longest);
  p.compute = timed.sums[longest].compute, p.transfers = timed.sums[longest].transfer;
  p.messages = s.of_messages[longest], p.buckets = s.of_buckets[longest];
  p.seconds += besides;
  p.rest = p.seconds - p.compute - p.transfers - p.messages - p.buckets;
  return p;
}

}  // namespace

Prediction predict(const StagePlans& plans, const EngineConfig& config, const Layout& layout, const Cluster& cluster, const Profile* profile) {
  const std::vector<RankCosts> costs = plans.costs(cluster, profile);
  const int group = layout.size(Axis::pipeline);
  const int walked = config.micros % group + groups_walked * std::max(group, micros_planned);
  if (config.micros <= walked + group) return prediction_of(time_of(costs, config, layout, config.micros), cluster.fit.step);
  const int shorter = walked + (config.micros - walked) % group;
  Prediction p = prediction_of(time_of(costs, config, layout, shorter), cluster.fit.step);
  const Prediction more = prediction_of(time_of(costs, config, layout, shorter + group), cluster.fit.step);
  const double groups_left = double(config.micros - shorter) / group;
  for (double Prediction::*part :
       {&Prediction::seconds, &Prediction::compute, &Prediction::transfers, &Prediction::messages, &Prediction::buckets, &Prediction::rest})
    p.*part += groups_left * (more.*part - p.*part);
  return p;
}

}  // namespace gyr
