// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/bounds/layout_bound.hpp"

#include <algorithm>
#include <cmath>
#include <queue>

#include "modules/cost/flops.hpp"
#include "modules/pass/offload_batch.hpp"
#include "src/planner/layouts/layout_space.hpp"

namespace gyr {

namespace {

constexpr double layout_rounding = 1 - 1e-9;  // factor that absorbs rounding: the bound adds values in another order than the prediction

// Range of activation.alpha that the dry run of a bound covers. It may differ from the value of the run.
FractionRange ends_of(const OffloadConfig& offload) { return offload.find_alpha || offload.alpha < 1 ? FractionRange{0, 1} : FractionRange{1, 1}; }

// The same layout without context and expert parallelism, with one sequence per rank.
LayoutChoice with_one_sequence(LayoutChoice c) {
  c.context = c.expert = 1, c.context_mode = ContextMode::ring, c.micro_batch_size = 1;
  return c;
}

// True if every layer is known to run a backward pass. If there are frozen weights or adapters (but not both), this
// holds if the first layer trains a weight and the model has no encoder.
bool all_layers_run_backward(const RunConfig& run) {
  const bool adapters = bool(run.optimizer.lora), frozen = !run.optimizer.frozen.empty();
  if (!adapters && !frozen) return true;
  const std::vector<Weight> weights = declared_weights(run.model);
  const Trained trained = run.optimizer.trained();
  return layers_of_encoder(run.model) == 0 && adapters != frozen &&
         std::any_of(weights.begin(), weights.end(), [&](const Weight& w) { return trained(w) && w.name.starts_with("model.layers.0."); });
}

}  // namespace

LayoutBound::LayoutBound(const RunConfig& run, const Cluster& cluster, const Profile* profile)
    : run_(run), cluster_(cluster), runs_(run, cluster, profile), backwards_(all_layers_run_backward(run) && runs_.train_alike()),
      contents_(run, cluster), weights_(run, contents_, backwards_), memory_(run, cluster, contents_, weights_, backwards_),
      places_(cluster, contents_), stages_(run, cluster, contents_, backwards_, profile != nullptr),
      replicas_(run, cluster, contents_, weights_, profile != nullptr), programs_(run, cluster, contents_, stages_, replicas_) {}

double LayoutBound::seconds_of(const LayoutChoice& c, const Places& places, const std::vector<StageTimes>& times) {
  const std::vector<ReplicaTimes>& replicas = replicas_.of(c, places);
  const double m = micros_of(run_, c);
  const bool splits = schedule_of(c) == zero_bubble;
  double fill = 0, drain = 0, most = 0, step = 0;
  for (int rank = 0; rank < c.pipeline; ++rank) {
    double forward = 0, backward = 0, least = 0;
    for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
      const StageTimes& stage = times[std::size_t(chunk * c.pipeline + rank)];
      const double of_chunk = m * stage.forward + (m - 1) * stage.backward();
      forward += stage.forward, backward += stage.backward();
      least = chunk == 0 ? of_chunk : std::min(least, of_chunk);
    }
    const ReplicaTimes& r = replicas[std::size_t(rank)];
    step = std::max(step, r.step);
    const double before = fill, after = splits ? 0 : drain;
    most = std::max(most, m * r.sharing_buffers);
    most = std::max(most, before + m * (forward + backward + r.clear) + after);
    most = std::max(most, before + least + r.reduce);
    most = std::max(most, r.gather + m * backward + after);
    if (c.shard == Shard::weights) most = std::max(most, r.gather + r.reduce);
    fill += times[std::size_t(rank)].forward + times[std::size_t(rank)].message;
    drain += times[std::size_t(rank)].backward() + times[std::size_t(rank)].message;
  }
  double there = 0, back = 0;  // forward and backward of one micro-batch through all earlier stages
  for (const StageTimes& stage : times) {
    most = std::max(most, there + m * (stage.forward + stage.backward()) + (splits ? 0 : back));
    there += stage.forward + stage.message, back += stage.backward() + stage.message;
  }
  return (most + step + cluster_.fit.step) * layout_rounding;
}

LayoutBound::Floor LayoutBound::of_best(const LayoutChoice& shape, const Places& places, const std::vector<StageTimes>& times) {
  LayoutChoice best = shape;
  for (const int schedule : schedules_of(run_, shape, micros_of(run_, shape)))
    if (schedules[std::size_t(schedule)].schedule == zero_bubble) best.schedule = schedule;
  // A higher sharding level needs less memory but more communication, so every level is tried.
  Floor least{std::numeric_limits<double>::infinity()};
  for (const Shard shard : shards_of(run_, shape)) {
    best.shard = shard;
    least.taken = memory_.of_states(best);
    if (!least.taken.of_device.lacks()) least.seconds = std::min(least.seconds, seconds_of(best, places, times));
  }
  return least;
}

// Rows are offloaded in blocks of OffloadBatch::row_block, so the real fraction may be up to one block smaller.
FractionRange LayoutBound::within(const FractionRange& fractions, const LayoutChoice& c) const {
  if (!run_.offload.on || (!run_.offload.find_alpha && fractions.least == 1)) return fractions;
  const TextLengths lengths = run_.lengths();
  const Index tokens = lengths.source > 0 ? std::min(lengths.text, lengths.source) : lengths.text;
  const double rows = std::floor(double(c.micro_batch_size * tokens) / c.context / (c.sequence ? c.tensor : 1));
  return {std::max(0.0, fractions.least - double(OffloadBatch::row_block) / rows), fractions.most};
}

// Best-first search over ranges of alpha: the range with the smallest bound is halved, until it is no longer than
// `finest`. A range whose smallest alpha does not fit in host memory is dropped.
LayoutBound::Floor LayoutBound::least_of(BoundOf of_fractions, const LayoutChoice& c, double finest) {
  if (!run_.offload.find_alpha) return (this->*of_fractions)(c, {run_.offload.alpha, run_.offload.alpha});
  using Range = std::pair<double, std::pair<double, double>>;  // lower bound in seconds, and its range of alpha
  std::priority_queue<Range, std::vector<Range>, std::greater<>> ranges;
  const Floor all = (this->*of_fractions)(c, {0, 1});
  ranges.push({all.seconds, {0, 1}});
  while (true) {
    const auto [seconds, fractions] = ranges.top();
    const auto [least, most] = fractions;
    if (most - least <= finest || all.taken.of_device.lacks() || all.taken.of_host.lacks()) return {seconds, all.taken};
    ranges.pop();
    const double middle = (least + most) / 2;
    for (const FractionRange& half : {FractionRange{least, middle}, FractionRange{middle, most}})
      if (const Floor floor = (this->*of_fractions)(c, half); half.least == 0 || !floor.taken.of_host.lacks())
        ranges.push({std::max(seconds, floor.seconds), {half.least, half.most}});
  }
}

LayoutBound::Floor LayoutBound::of_offloading(const LayoutChoice& c) { return least_of(&LayoutBound::of_offloading, c); }
LayoutBound::Floor LayoutBound::of_shared(const LayoutChoice& c) { return least_of(&LayoutBound::of_shared, c); }
LayoutBound::Floor LayoutBound::of(const LayoutChoice& c) { return least_of(&LayoutBound::of, c); }
LayoutBound::Floor LayoutBound::of_programs(const LayoutChoice& c) { return least_of(&LayoutBound::of_programs, c, 1.0 / 128); }

LayoutBound::Floor LayoutBound::of_shape(const LayoutChoice& shape) {
  LayoutChoice best = shape;
  best.shard = shards_of(run_, shape).back();
  if (const MemoryTaken& taken = memory_.of_states(best); taken.of_device.lacks()) return {0, taken};
  return of_one_sequence(shape, runs_.of_kept(with_one_sequence(shape)), {});
}

LayoutBound::Floor LayoutBound::of_offloading(const LayoutChoice& shape, const FractionRange& fractions) {
  return of_one_sequence(shape, runs_.of(with_one_sequence(shape), false, ends_of(run_.offload)), within(fractions, shape));
}

LayoutBound::Floor LayoutBound::of_one_sequence(const LayoutChoice& shape, const PartRun& run, const FractionRange& fractions) {
  const Places& places = places_.of(shape, run, false);
  Scale scale = stages_.scale_of(shape, 1);
  if (shape.context > 1) scale.waits = stages_.meeting(shape, places), scale.attention_ranks = shape.attention_ranks;
  return of_best(shape, places, stages_.of(shape, run, places, scale, fractions));
}

LayoutBound::Floor LayoutBound::of_shared(const LayoutChoice& shape, const FractionRange& fractions) {
  LayoutChoice base = shape;
  base.micro_batch_size = 1;
  const PartRun& run = runs_.of(base, false, ends_of(run_.offload));
  const Places& places = places_.of(shape, run, true);
  return of_best(shape, places, stages_.of(shape, run, places, stages_.scale_of(shape, shape.context), within(fractions, shape)));
}

LayoutBound::Floor LayoutBound::of(const LayoutChoice& c, const FractionRange& fractions) {
  const FractionRange rows = run_.offload.find_alpha ? within(fractions, c) : fractions;
  const PartRun& run = runs_.of(c, false, run_.offload.find_alpha ? FractionRange{0, 1} : fractions);
  const Places& places = places_.of(c, run, true);
  return {seconds_of(c, places, stages_.of(c, run, places, rows)), memory_.of(c, run, rows)};
}

LayoutBound::Floor LayoutBound::of_programs(const LayoutChoice& c, const FractionRange& fractions) {
  RunConfig run = with(run_, c);
  if (run.offload.find_alpha) run.offload = {run.offload.on, fractions.most};  // the value of alpha changes neither programs nor weights
  const Layout layout = contents_.layout_of(c);
  const EngineConfig config = engine_config(run, layout);
  const PartRun& parts = runs_.of(c, config.schedule == zero_bubble, run_.offload.find_alpha ? FractionRange{0, 1} : fractions);
  const Places& places = places_.of(c, parts, true);
  const FractionRange rows = within(fractions, c);
  std::vector<const ProgramBound::Held*> held;
  Floor floor;
  for (int rank = 0; rank < c.pipeline; ++rank) {
    held.push_back(&programs_.held_by(run, layout, rank));
    memory_.add(floor.taken, c, parts, rows, rank, held.back()->state);
  }
  floor.seconds = programs_.seconds_of(config, c, places, stages_.of(c, parts, places, rows), held);
  return floor;
}

}  // namespace gyr
