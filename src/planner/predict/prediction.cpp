// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/predict/prediction.hpp"

#include <algorithm>
#include <utility>

namespace gyr {

namespace {

constexpr int micros_planned = 3;  // micro-batches in a dry run: the first, the last, and one that represents all others
constexpr int groups_walked = 4;   // minimum number of simulated groups of micro-batches; a group has as many as the pipeline has ranks

EngineConfig with_micros(EngineConfig config, int micros) {
  config.micros = micros;
  return config;
}

std::vector<Program> programs_of(const EngineConfig& config, const Layout& layout, const std::vector<BucketPlan>& buckets, int micros) {
  std::vector<Program> programs;
  for (int rank = 0; rank < layout.size(Axis::pipeline); ++rank)
    programs.push_back(compile(config.schedule, pipeline_shape(layout, micros), rank, buckets[rank]));
  return programs;
}

}  // namespace

StagePlans::StagePlans(const EngineConfig& config, const Layout& layout, StageRuns& runs) : layout_(layout) {
  const EngineConfig planned = with_micros(config, std::min(config.micros, micros_planned));
  for (int stage = 0; stage < layout.size(Axis::pipeline); ++stage) {
    auto& ranks = stages_.emplace_back();
    for (const int position : positions_of(layout, stage)) ranks.emplace_back(position, runs.of(planned, layout, position));
  }
}

StagePlans::StagePlans(const EngineConfig& config, const Layout& layout) {
  StageRuns runs;
  *this = StagePlans(config, layout, runs);
}

std::vector<RankCosts> StagePlans::costs(const Cluster& cluster, const Profile* profile, Counted* counted) const {
  Counted local_counts;
  if (!counted) counted = &local_counts;
  std::vector<RankCosts> stages;
  for (const auto& ranks : stages_) {
    bool first = true;
    for (const auto& [position, run] : ranks)
      for (const auto& [island, there] : on_islands(layout_, position, cluster)) {
        auto tasks = counted->find({run.get(), island});
        if (tasks == counted->end())
          tasks = counted->emplace(std::pair{run.get(), island}, CountedTasks(*run, cluster.island(island), profile)).first;
        RankCosts costs(tasks->second, layout_, there, cluster);
        if (std::exchange(first, false)) stages.push_back(std::move(costs));
        else stages.back().join(costs);
      }
  }
  return stages;
}

namespace {

// Activation slots of each chunk of a rank. GPipe needs one per micro-batch; other schedules need no more once their
// pipeline is full.
std::vector<int> slots_of(const EngineConfig& config, const PipelineShape& shape, int rank) {
  if (config.schedule == all_forward_all_backward) return {shape.micros};
  const int enough = std::min(shape.micros, shape.micros % shape.ranks + groups_walked * std::max(shape.ranks, micros_planned));
  return compile(config.schedule, {shape.ranks, shape.chunks, enough}, rank).slots;
}

}  // namespace

StagePlans::LargestRank StagePlans::largest_rank(const EngineConfig& config) const {
  LargestRank largest_rank;
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    const std::vector<int> slots = slots_of(config, pipeline_shape(layout_, config.micros), int(stage));
    for (const auto& [position, run] : stages_[stage]) {
      const Capacity capacity = run->capacity(slots);
      if (capacity.total() > largest_rank.bytes) largest_rank.bytes = capacity.total(), largest_rank.stage = int(stage);
      largest_rank.host = std::max(largest_rank.host, capacity.host());
    }
  }
  return largest_rank;
}

void StagePlans::each_rank(const EngineConfig& config, const Cluster& cluster, const Taken& visit) const {
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    const std::vector<int> slots = slots_of(config, pipeline_shape(layout_, config.micros), int(stage));
    for (const auto& [position, run] : stages_[stage]) {
      const Capacity capacity = run->capacity(slots);
      for (const auto& [island, there] : on_islands(layout_, position, cluster)) visit(capacity, cluster.island(island));
    }
  }
}

MemoryTaken StagePlans::taken(const EngineConfig& config, const Cluster& cluster) const {
  MemoryTaken taken;
  each_rank(config, cluster,
            [&](const Capacity& capacity, const Cluster& island) { taken.add(double(capacity.total()), double(capacity.host()), island); });
  return taken;
}

namespace {

struct Timed {
  std::vector<Program> programs;
  Simulation simulation;
  std::vector<TaskCost> sums;  // summed task costs of each rank
};

Timed time_of(const std::vector<RankCosts>& costs, const EngineConfig& config, const Layout& layout, int micros) {
  std::vector<BucketPlan> buckets;
  for (const RankCosts& rank : costs) buckets.push_back(rank.buckets());
  Timed timed{programs_of(config, layout, buckets, micros), {}, {}};
  std::vector<TaskTimes> times;
  for (std::size_t rank = 0; rank < costs.size(); ++rank) {
    times.push_back(costs[rank].times_of(timed.programs[rank]));
    timed.sums.push_back(costs[rank].sum_of(timed.programs[rank]));
  }
  timed.simulation = timeline(timed.programs, times);
  return timed;
}

Prediction prediction_of(const Timed& timed, double besides, std::size_t rank) {
  const Simulation& s = timed.simulation;
  Prediction p;
  p.seconds = s.makespan, p.longest = int(rank);
  p.compute = timed.sums[rank].compute, p.transfers = timed.sums[rank].transfer, p.copies = timed.sums[rank].copies;
  p.messages = s.message_wait[rank], p.buckets = s.bucket_wait[rank];
  p.seconds += besides;
  p.rest = p.seconds - p.compute - p.transfers - p.copies - p.messages - p.buckets;
  return p;
}

// Extrapolates: p += times * (more - p).
void extend(Prediction& p, const Prediction& more, int times) {
  for (double Prediction::*part : {&Prediction::seconds, &Prediction::compute, &Prediction::transfers, &Prediction::copies, &Prediction::messages,
                                   &Prediction::buckets, &Prediction::rest})
    p.*part += times * (more.*part - p.*part);
}

}  // namespace

// Number of simulated micro-batches, and number of further groups that are extrapolated.
struct Walk {
  int micros, groups_left;
};

Walk walk_of(int micros, int group, int groups) {
  const int walked = micros % group + groups * std::max(group, micros_planned);
  if (micros <= walked + group) return {micros, 0};
  const int shorter = walked + (micros - walked) % group;
  return {shorter, (micros - shorter) / group};
}

// True if one more group of micro-batches lengthens the step by at least the work of the busiest rank. If not, the end
// of the shorter step still waits for something that more micro-batches will overlap, such as gradient reductions, and
// extrapolation would be too low.
bool extrapolation_is_safe(const Simulation& walked, const Simulation& more) {
  constexpr double rounding = 1e-9;
  double busiest = 0;
  for (std::size_t rank = 0; rank < walked.busy.size(); ++rank) busiest = std::max(busiest, more.busy[rank] - walked.busy[rank]);
  return more.makespan - walked.makespan >= busiest - rounding * walked.makespan;
}

bool is_fully_simulated(int micros, int ranks) { return walk_of(micros, ranks, groups_walked).groups_left == 0; }

double extrapolated_step_seconds(int micros, int ranks, const std::function<Simulation(int)>& walk) {
  for (int groups = groups_walked;; groups *= 2) {
    const Walk w = walk_of(micros, ranks, groups);
    const Simulation walked = walk(w.micros);
    if (w.groups_left == 0) return walked.makespan;
    const Simulation more = walk(w.micros + ranks);
    if (extrapolation_is_safe(walked, more)) return walked.makespan + w.groups_left * (more.makespan - walked.makespan);
  }
}

StepTimeline timeline_of(const StagePlans& plans, const EngineConfig& config, const Layout& layout, const Cluster& cluster, const Profile* profile,
                         StagePlans::Counted* counted) {
  const std::vector<RankCosts> costs = plans.costs(cluster, profile, counted);
  const int group = layout.size(Axis::pipeline);
  Walk walk;
  Timed timed, more;
  for (int groups = groups_walked;; groups *= 2) {
    walk = walk_of(config.micros, group, groups);
    timed = time_of(costs, config, layout, walk.micros);
    if (walk.groups_left == 0) break;
    more = time_of(costs, config, layout, walk.micros + group);
    if (extrapolation_is_safe(timed.simulation, more.simulation)) break;
  }
  StepTimeline step;
  step.micros = walk.micros, step.micros_left = config.micros - walk.micros, step.besides = cluster.fit.step;
  const std::vector<double>& busy = timed.simulation.busy;
  step.longest = int(std::max_element(busy.begin(), busy.end()) - busy.begin());
  for (std::size_t rank = 0; rank < costs.size(); ++rank) step.of_rank.push_back(prediction_of(timed, step.besides, rank));
  if (walk.groups_left > 0) {
    for (std::size_t rank = 0; rank < costs.size(); ++rank) extend(step.of_rank[rank], prediction_of(more, step.besides, rank), walk.groups_left);
    step.left = walk.groups_left * (more.simulation.makespan - timed.simulation.makespan);
  }
  step.programs = std::move(timed.programs), step.walked = std::move(timed.simulation);
  return step;
}

Prediction predict(const StagePlans& plans, const EngineConfig& config, const Layout& layout, const Cluster& cluster, const Profile* profile,
                   StagePlans::Counted* counted) {
  const StepTimeline step = timeline_of(plans, config, layout, cluster, profile, counted);
  return step.of_rank[std::size_t(step.longest)];
}

}  // namespace gyr
