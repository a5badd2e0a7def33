// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/bounds/program_bound.hpp"

#include <algorithm>

#include "src/base/precision.hpp"
#include "src/planner/machine/collective.hpp"
#include "src/planner/predict/prediction.hpp"

namespace gyr {

namespace {

constexpr double program_rounding = 1 - 1e-9;  // factor that absorbs rounding: the bound adds values in another order than the prediction
constexpr double continued = 1 - 1e-2;         // factor for extrapolated steps: the prediction may extrapolate from other simulated lengths

// Properties of a task that determine its time.
using Kind = std::tuple<Op, int, Index, Index, Payload, int, int>;
Kind kind_of(const Task& t) {
  if (is_computation(t)) return {t.op, t.chunk, t.parts.first, t.parts.last, {}, -1, -1};
  return {t.op, -1, 0, 0, t.payload, t.op == Op::send ? t.peer : -1, t.bucket};
}

}  // namespace

ProgramBound::ProgramBound(const RunConfig& run, const Cluster& cluster, StageContents& contents, StageBound& stages, ReplicaBound& replicas)
    : run_(run), cluster_(cluster), contents_(contents), stages_(stages), replicas_(replicas) {}

// Constructs the engine of a dry run without running it: the placement of the weights is known after construction.
const ProgramBound::Held& ProgramBound::held_by(const RunConfig& run, const Layout& layout, int stage) {
  const int replicas = layout.size(token_axes);
  const bool sharded = layout.zero_shard() != Shard::none || layout.expert > 1;
  const std::string key =
      fmt::format("n{} t{} z{} a{} e{} c{} {}", sharded ? replicas : std::min(replicas, 2), layout.size(Axis::tensor), int(layout.zero_shard()),
                  layout.attention_ranks, layout.expert, layout.expert > 1 ? layout.size(Axis::context) : 1, content_of(run.model, layout, stage));
  const auto [known, fresh] = held_.try_emplace(key);
  if (!fresh) return known->second;
  EngineConfig config = engine_config(run, layout);
  config.micros = 1;
  Grid grid = Grid::dry_run(layout, positions_of(layout, stage).front());
  Timers timers(engine_timer_names());
  Engine engine(config, grid, nullptr, timers);
  Held& held = known->second;
  held.plan = known_plan(engine.buckets());
  const Parameters& parameters = engine.stage().parameters();
  const double travels = double(size_of(config.reduce_dtype.value_or(accumulator_of(config.precision))));
  for (const Bucket& bucket : parameters.buckets()) {
    std::vector<Held::Travelling>&reduced = held.reduced.emplace_back(), &gathered = held.gathered.emplace_back();
    double& cleared = held.cleared.emplace_back();
    for (const WeightSection& s : bucket.sections) {
      if (s.trained) cleared += double(size_of(accumulator_of(config.precision))) * double(s.gradient_size);
      const double bytes = s.trained ? travels * double(s.gradient_size) : 0;
      // Without sharding, consecutive reductions of a bucket are merged into one transfer.
      if (layout.zero_shard() == Shard::none && !reduced.empty() && reduced.back().of_experts == s.of_experts) reduced.back().bytes += bytes;
      else reduced.push_back({bytes, s.of_experts});
      if (s.trained || layout.zero_shard() == Shard::weights)
        gathered.push_back({double(size_of(s.wide ? accumulator_of(config.precision) : config.precision)) * double(s.kept_size()), s.of_experts});
    }
  }
  const Capacity capacity = engine.measured();
  held.state = double(capacity.weights + capacity.gradients + capacity.optimizer);
  return held;
}

const BucketPlan* ProgramBound::known_plan(const BucketPlan& plan) {
  const auto known = std::find(plans_.begin(), plans_.end(), plan);
  return known != plans_.end() ? &*known : &plans_.emplace_back(plan);
}

// Compiled programs are reused by other layouts. The cache is cleared when it exceeds a limit.
const ProgramBound::Compiled& ProgramBound::compiled(Schedule schedule, const PipelineShape& shape, const Plans& plans) {
  constexpr std::size_t most_tasks = 1'000'000;
  if (tasks_ > most_tasks) compiled_.clear(), tasks_ = 0;
  const auto [known, fresh] = compiled_.try_emplace({schedule, shape.ranks, shape.chunks, shape.micros, plans});
  Compiled& all = known->second;
  for (int rank = 0; fresh && rank < shape.ranks; ++rank) {
    const Program& program = all.programs.emplace_back(compile(schedule, shape, rank, *plans[std::size_t(rank)]));
    std::vector<Task>& kinds = all.kinds.emplace_back();
    std::vector<int>& of_tasks = all.kind_of.emplace_back();
    std::map<Kind, int> places;
    for (const Task& task : program.tasks) {
      const auto [place, first] = places.try_emplace(kind_of(task), int(kinds.size()));
      if (first) kinds.push_back(task);
      of_tasks.push_back(place->second);
    }
    tasks_ += program.tasks.size();
  }
  return all;
}

double ProgramBound::seconds_of(Operation op, const std::vector<Held::Travelling>& all, const Places& places, int rank) const {
  double sum = 0;
  for (const Held::Travelling& t : all)
    if (t.bytes > 0) sum += gyr::seconds_of(op, {1, Index(t.bytes)}, places.replicas_of(t.of_experts, rank), cluster_);
  return sum;
}

double ProgramBound::seconds_of(const Task& t, const LayoutChoice& c, const Places& places, const std::vector<StageTimes>& stages, const Held& held,
                                int rank) {
  switch (t.op) {
    case Op::forward:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weights: {
      const std::size_t stage = std::size_t(t.chunk * c.pipeline + rank);
      double most = 0;
      for (const auto& kind : stages[stage].parts) most = std::max(most, stages_.seconds_of(t, contents_.of(c).spans[stage], *kind));
      return most;
    }
    case Op::send: return stages[std::size_t(t.payload == Payload::activations ? rank : t.peer)].message;
    case Op::reduce:
      return seconds_of(c.shard == Shard::none ? Operation::all_reduce : Operation::reduce_scatter, held.reduced[std::size_t(t.bucket)], places,
                        rank);
    case Op::gather: return seconds_of(Operation::all_gather, held.gathered[std::size_t(t.bucket)], places, rank);
    case Op::step: return replicas_.step_of(c, rank);
    case Op::clear: return replicas_.clearing(held.cleared[std::size_t(t.bucket)]);
    case Op::receive: return 0;
  }
  return 0;
}

TaskTimes ProgramBound::times_of(const Compiled& all, const LayoutChoice& c, const Places& places, const std::vector<StageTimes>& stages,
                                 const Held& held, int rank) {
  const std::vector<Task>& kinds = all.kinds[std::size_t(rank)];
  std::vector<double> of_kinds;
  of_kinds.reserve(kinds.size());
  for (const Task& kind : kinds) of_kinds.push_back(seconds_of(kind, c, places, stages, held, rank));
  TaskTimes times{{}, *held.plan, cluster_.links_overlap};
  times.seconds.reserve(all.kind_of[std::size_t(rank)].size());
  for (const int kind : all.kind_of[std::size_t(rank)]) times.seconds.push_back(of_kinds[std::size_t(kind)]);
  // As in a prediction, all gathers after the optimizer step take the same time.
  const std::vector<Task>& tasks = all.programs[std::size_t(rank)].tasks;
  double gathered = 0;
  std::vector<std::size_t> after;
  for (std::size_t i = 0; i < tasks.size() && c.shard != Shard::weights; ++i)
    if (tasks[i].op == Op::gather) after.push_back(i), gathered += times.seconds[i];
  for (const std::size_t i : after) times.seconds[i] = gathered / double(after.size());
  return times;
}

Simulation ProgramBound::walk(const Compiled& all, const LayoutChoice& c, const Places& places, const std::vector<StageTimes>& stages,
                              const std::vector<const Held*>& held) {
  std::vector<TaskTimes> times;
  for (int rank = 0; rank < c.pipeline; ++rank) times.push_back(times_of(all, c, places, stages, *held[std::size_t(rank)], rank));
  return timeline(all.programs, times);
}

double ProgramBound::seconds_of(const EngineConfig& config, const LayoutChoice& c, const Places& places, const std::vector<StageTimes>& stages,
                                const std::vector<const Held*>& held) {
  Plans plans;
  for (const Held* of_rank : held) plans.push_back(of_rank->plan);
  const double seconds = extrapolated_step_seconds(config.micros, c.pipeline, [&](int micros) {
    return walk(compiled(config.schedule, {c.pipeline, c.virtual_stages, micros}, plans), c, places, stages, held);
  });
  return (seconds + cluster_.fit.step) * (is_fully_simulated(config.micros, c.pipeline) ? program_rounding : continued);
}

}  // namespace gyr
