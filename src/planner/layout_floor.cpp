// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/layout_floor.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "modules/flops.hpp"
#include "src/base/precision.hpp"
#include "src/config/layout_rules.hpp"
#include "src/planner/collective.hpp"
#include "src/planner/prediction.hpp"
#include "src/planner/space.hpp"
#include "src/train/engine_config.hpp"

namespace gyr {

namespace {

constexpr double rounding = 1 - 1e-9;   // sums here are in another order than those of a prediction
constexpr double continued = 1 - 1e-3;  // what is not walked to its end is continued from other walks than the prediction's

Schedule schedule_of(const LayoutChoice& c) { return c.virtual_stages > 1 ? interleaved : schedules[std::size_t(c.schedule)].schedule; }

}  // namespace

LayoutFloor::LayoutFloor(const RunConfig& run, int ranks, const Cluster& cluster, const Profile* profile)
    : run_(run), ranks_(ranks), cluster_(cluster), measured_(profile != nullptr), types_(run.model), runs_(run, cluster, profile),
      elements_(std::size_t(types_.count()) + 2) {
  ModelConfig model = run.model;
  model.pattern = types_.pattern();
  const bool any_frozen = !run.optimizer.frozen.empty();  // patterns are of the whole model's layers
  const std::string layers = "model.layers.";
  std::size_t part = 0;
  for (const Weight& w : declared_weights(model)) {
    if (w.name.starts_with(layers)) part = std::size_t(std::stoi(w.name.substr(layers.size()))) + 1;
    else if (part > 0) part = elements_.size() - 1;
    PartElements& e = elements_[part];
    const bool sharded = w.sharding(Axis::tensor) != nullptr;
    const double size = double(w.size());
    (w.expert ? e.experts : sharded ? e.sharded : e.whole) += size;
    if (w.storage == Storage::wide) e.wide += size;
    ++e.weights;
    if (!any_frozen) (w.expert ? e.trained_experts : sharded ? e.trained_sharded : e.trained_whole) += size;
  }
}

const std::vector<Span>& LayoutFloor::stages_of(const LayoutChoice& c) {
  const auto [known, fresh] = stages_.try_emplace({c.pipeline, c.virtual_stages});
  if (fresh) known->second = gyr::stages_of(with(run_, c));
  return known->second;
}

const std::vector<StageContent>& LayoutFloor::contents_of(const LayoutChoice& c) {
  const auto [known, fresh] = contents_.try_emplace({c.pipeline, c.virtual_stages});
  if (!fresh) return known->second;
  for (const Span& span : stages_of(c)) {
    StageContent& stage = known->second.emplace_back();
    stage.layers.resize(std::size_t(types_.count()));
    for (Index layer = span.first; layer < span.last; ++layer) ++stage.layers[std::size_t(types_.of_layer(layer))];
    stage.first = span.first == 0, stage.last = span.last == run_.model.layers();
  }
  return known->second;
}

Layout LayoutFloor::layout_of(const LayoutChoice& c) { return layout_of_settled(with(run_.parallel, c), c.data, c.attention_ranks, stages_of(c)); }

LayoutFloor::PartElements LayoutFloor::elements_of(const StageContent& stage) const {
  PartElements sum;
  const auto add = [&](const PartElements& part, double times) {
    for (double PartElements::*of : {&PartElements::sharded, &PartElements::whole, &PartElements::experts, &PartElements::trained_sharded,
                                     &PartElements::trained_whole, &PartElements::trained_experts, &PartElements::wide, &PartElements::weights})
      sum.*of += times * part.*of;
  };
  if (stage.first) add(elements_.front(), 1);
  for (std::size_t type = 0; type < stage.layers.size(); ++type) add(elements_[type + 1], stage.layers[type]);
  if (stage.last) add(elements_.back(), 1);
  return sum;
}

// Of mixers that are apart each rank has one: what is whole on it counts as an even part.
double LayoutFloor::elements_on(const PartElements& e, const LayoutChoice& c) const {
  const double whole = c.attention_ranks > 0 ? e.whole / c.tensor : e.whole;
  return e.sharded / c.tensor + whole + e.experts / c.tensor / c.expert;
}

double LayoutFloor::trained_on(const PartElements& e, const LayoutChoice& c, bool with_experts) const {
  const double whole = c.attention_ranks > 0 ? e.trained_whole / c.tensor : e.trained_whole;
  return e.trained_sharded / c.tensor + whole + (with_experts ? e.trained_experts / c.tensor / c.expert : 0);
}

// Experts are cut among fewer ranks: taken as if among all.
double LayoutFloor::bytes_of_state(const LayoutChoice& c, int rank) {
  const DType narrow = precision_of(run_.train.precision), wide = accumulator_of(narrow);
  double all = 0, trained = 0;
  for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
    const PartElements e = elements_of(contents_of(c)[std::size_t(chunk * c.pipeline + rank)]);
    all += elements_on(e, c), trained += trained_on(e, c, true);
  }
  const auto part = [&](double bytes, Shard level) { return bytes / (c.shard >= level ? c.token_ranks() : 1); };
  return rounding * (part(all * double(size_of(narrow)), Shard::weights) + part(trained * double(size_of(wide)), Shard::gradients) +
                     part(trained * double(size_of(wide)) * (narrow != wide ? 3 : 2), Shard::optimizer));
}

double LayoutFloor::bytes_of_state(const LayoutChoice& c) {
  double most = 0;
  for (int rank = 0; rank < c.pipeline; ++rank) most = std::max(most, bytes_of_state(c, rank));
  return most;
}

double LayoutFloor::seconds_of(const PartCount& count, const Placements& placements, const Scale& scale) const {
  double sum = count.compute;
  if (!scale.exact)
    sum = scale.rows * count.floor.products + scale.passes * count.floor.passes + (scale.attention ? scale.rows * count.floor.fused : 0);
  for (const auto& [c, line] : count.transfers) {
    const double bytes = scale.exact ? double(line.traffic.bytes) : 0.999 * scale.rows * double(line.traffic.bytes);
    sum += gyr::seconds_of(line.operation, {line.traffic.calls, Index(bytes)}, placements[std::size_t(c)], cluster_);
  }
  return sum;
}

const LayoutFloor::Places& LayoutFloor::places_of(const LayoutChoice& c, const PartRun& run, bool exact) {
  const auto [known, fresh] = places_.try_emplace({c.data, c.pipeline, c.context, c.tensor, c.attention_ranks, c.expert, exact});
  Places& places = known->second;
  if (!fresh) return places;
  const Layout layout = layout_of(c);
  const auto position_of = [&](int rank, int tensor, int context) {
    return layout.position_at([&](Axis axis) {
      return axis == Axis::pipeline ? rank : axis == Axis::tensor ? tensor : axis == Axis::context ? context : 0;
    });
  };
  for (int rank = 0; rank < c.pipeline; ++rank) {
    const int here = position_of(rank, 0, 0), next = position_of((rank + 1) % c.pipeline, 0, 0);
    places.replicas.push_back(placement_of(ranks_of(layout, here, token_axes.text()), cluster_));
    places.neighbours.push_back(placement_of({layout.rank_at(here), layout.rank_at(next)}, cluster_));
  }
  for (const PartsOfRank& parts : run.ranks) {
    std::vector<bool> used(parts.communicators.size());
    for (const Part& part : parts.parts)
      for (const PartCount* count : {&part.forward, &part.backward_input, &part.backward_weights})
        for (const auto& [communicator, line] : count->transfers) used[std::size_t(communicator)] = true;
    std::vector<Placements>& kinds = places.kinds.emplace_back();
    std::vector<int>& kind_of = places.kind_of.emplace_back();
    for (int rank = 0; rank < c.pipeline; ++rank) {
      const int position = position_of(rank, parts.tensor, exact ? parts.context : 0);
      Placements placements(used.size());
      for (std::size_t i = 0; i < used.size(); ++i)
        if (used[i]) placements[i] = placement_of(ranks_of(layout, position, parts.communicators[i]), cluster_);
      const auto same = std::find(kinds.begin(), kinds.end(), placements);
      kind_of.push_back(int(same - kinds.begin()));
      if (same == kinds.end()) kinds.push_back(std::move(placements));
    }
  }
  return places;
}

// Of each stage, on the slowest of the ranks that stand for it.
std::vector<LayoutFloor::StageTimes> LayoutFloor::times_of(const LayoutChoice& c, const PartRun& run, const Places& places, const Scale& scale) {
  const std::vector<StageContent>& contents = contents_of(c);
  const bool backwards = run_.optimizer.frozen.empty();  // else some may end early
  std::vector<StageTimes> times(contents.size());
  for (std::size_t i = 0; i < run.ranks.size(); ++i) {
    std::vector<std::shared_ptr<const std::vector<PartTimes>>> seconds;  // of each kind and part
    for (const Placements& kind : places.kinds[i]) {
      std::vector<PartTimes> of_kind;
      for (const Part& part : run.ranks[i].parts) {
        PartTimes& t = of_kind.emplace_back(PartTimes{seconds_of(part.forward, kind, scale)});
        if (backwards)
          t.backward_input = seconds_of(part.backward_input, kind, scale), t.backward_weights = seconds_of(part.backward_weights, kind, scale);
      }
      seconds.push_back(std::make_shared<const std::vector<PartTimes>>(std::move(of_kind)));
    }
    for (std::size_t stage = 0; stage < contents.size(); ++stage) {
      const StageContent& content = contents[stage];
      const auto& kind = seconds[std::size_t(places.kind_of[i][stage % std::size_t(c.pipeline)])];
      const std::vector<PartTimes>& of_parts = *kind;
      PartTimes sum;
      const auto add = [&](const PartTimes& part, double count) {
        sum.forward += count * part.forward;
        sum.backward_input += count * part.backward_input, sum.backward_weights += count * part.backward_weights;
      };
      if (content.first) add(of_parts.front(), 1);
      for (std::size_t type = 0; type < content.layers.size(); ++type) add(of_parts[type + 1], content.layers[type]);
      if (content.last) add(of_parts.back(), 1);
      StageTimes& t = times[stage];
      t.forward = std::max(t.forward, sum.forward);
      if (sum.backward_input + sum.backward_weights > t.backward()) t.backward_input = sum.backward_input, t.backward_weights = sum.backward_weights;
      if (scale.exact) t.parts.push_back(kind);
    }
  }
  const Index tokens = c.micro_batch_size * run_.lengths().text / c.context / (c.sequence ? c.tensor : 1);
  const Index bytes = tokens * run_.model.hidden_size * size_of(precision_of(run_.train.precision));
  for (std::size_t stage = 0; stage < contents.size() && c.pipeline > 1; ++stage)
    times[stage].message = gyr::seconds_of(Operation::send, {1, bytes}, places.neighbours[stage % std::size_t(c.pipeline)], cluster_);
  return times;
}

double LayoutFloor::seconds_of(const LayoutChoice& c, const Places& places, const std::vector<StageTimes>& times) {
  const std::vector<StageContent>& contents = contents_of(c);
  const double m = micros_of(run_, c), n = c.token_ranks();
  const bool splits = schedule_of(c) == zero_bubble;
  const DType narrow = precision_of(run_.train.precision), wide = accumulator_of(narrow);
  double fill = 0, drain = 0, most = 0, step = 0;
  for (int rank = 0; rank < c.pipeline; ++rank) {
    double forward = 0, backward = 0, least = 0, dense = 0, all = 0;
    for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
      const std::size_t stage = std::size_t(chunk * c.pipeline + rank);
      const double of_chunk = m * times[stage].forward + (m - 1) * times[stage].backward();
      forward += times[stage].forward, backward += times[stage].backward();
      least = chunk == 0 ? of_chunk : std::min(least, of_chunk);
      const PartElements e = elements_of(contents[stage]);
      dense += trained_on(e, c, false), all += e.sharded / c.tensor;
    }
    double reduce = 0, gather = 0;
    if (n > 1) {
      const GroupPlacement& replicas = places.replicas[std::size_t(rank)];
      const double travel = double(size_of(run_.parallel.reduce_dtype.value_or(wide)));
      reduce =
          gyr::seconds_of(c.shard == Shard::none ? Operation::all_reduce : Operation::reduce_scatter, {1, Index(dense * travel)}, replicas, cluster_);
      if (c.shard != Shard::none && dense > 0)
        gather = gyr::seconds_of(Operation::all_gather, {1, Index(all * double(size_of(narrow)) / n)}, replicas, cluster_);
    }
    step = std::max(step, step_of(c, rank));
    const double before = fill, behind = splits ? 0 : drain;
    most = std::max(most, before + m * (forward + backward) + behind);
    most = std::max(most, before + least + reduce);
    most = std::max(most, gather + m * backward + behind);
    if (c.shard == Shard::weights) most = std::max(most, gather + reduce);
    fill += times[std::size_t(rank)].forward + times[std::size_t(rank)].message;
    drain += times[std::size_t(rank)].backward() + times[std::size_t(rank)].message;
  }
  double there = 0, back = 0;  // of a micro-batch through all stages before
  for (const StageTimes& stage : times) {
    most = std::max(most, there + m * (stage.forward + stage.backward()) + (splits ? 0 : back));
    there += stage.forward + stage.message, back += stage.backward() + stage.message;
  }
  return (most + step + cluster_.fit.step) * rounding;
}

// Gradients begin at zero, a sum of squares, and AdamW over masters, moments and weights. What is cut has gaps between weights, and the first part,
// which stands for all, may have all of them.
double LayoutFloor::step_of(const LayoutChoice& c, int rank) {
  if (measured_) return 0;
  constexpr double gap = 64;
  const DType narrow = precision_of(run_.train.precision), wide = accumulator_of(narrow);
  double trained = 0, masters = 0, gaps = 0;
  for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
    const PartElements e = elements_of(contents_of(c)[std::size_t(chunk * c.pipeline + rank)]);
    const double here = trained_on(e, c, true);
    trained += here, masters += std::max(0.0, here - e.wide), gaps += gap * e.weights;
  }
  const auto part = [&](double elements, Shard level) {
    return c.shard >= level && c.token_ranks() > 1 ? std::max(0.0, elements / c.token_ranks() - gaps) : elements;
  };
  const double bytes = 8 * part(trained, Shard::optimizer) * double(size_of(wide)) +
                       (narrow != wide ? part(masters, Shard::optimizer) * double(size_of(narrow)) : 0) +
                       part(trained, Shard::gradients) * double(size_of(wide));
  return bytes / (cluster_.fit.memory * cluster_.device.memory_bandwidth);
}

// Nothing is run: an engine knows where its weights lie as soon as there is one.
const LayoutFloor::Held& LayoutFloor::held_by(const RunConfig& run, const Layout& layout, int stage) {
  const int replicas = layout.size(token_axes);
  const bool cut = layout.cut() != Shard::none || layout.expert > 1;
  const std::string key =
      fmt::format("{} t{} a{} e{} c{} n{} z{}", content_of(run.model, layout, stage), layout.size(Axis::tensor), layout.attention_ranks,
                  layout.expert, layout.expert > 1 ? layout.size(Axis::context) : 1, cut ? replicas : std::min(replicas, 2), int(layout.cut()));
  const auto [known, fresh] = held_.try_emplace(key);
  if (!fresh) return known->second;
  EngineConfig config = engine_config(run, layout);
  config.micros = 1;
  Grid grid = Grid::dry_run(layout, positions_of(layout, stage).front());
  Timers timers(engine_timer_names());
  Engine engine(config, grid, nullptr, timers);
  Held& held = known->second;
  held.plan = engine.buckets();
  const Parameters& parameters = engine.stage().parameters();
  const double travels = double(size_of(config.reduce_dtype.value_or(accumulator_of(config.precision))));
  for (const Bucket& bucket : parameters.buckets()) {
    std::vector<double>&reduced = held.reduced.emplace_back(), &gathered = held.gathered.emplace_back();
    for (const WeightSection& s : bucket.sections) {
      if (s.of_experts && layout.expert > 1) continue;  // they go to other ranks
      const double bytes = s.trained ? travels * double(s.gradient_size) : 0;
      if (layout.cut() == Shard::none && !reduced.empty()) reduced.front() += bytes;  // in one
      else reduced.push_back(bytes);
      gathered.push_back(double(size_of(s.wide ? accumulator_of(config.precision) : config.precision)) * double(s.kept_size()));
    }
  }
  const Capacity capacity = engine.measured();
  held.state = double(capacity.weights + capacity.gradients + capacity.optimizer);
  return held;
}

TaskTimes LayoutFloor::times_of(const Program& program, const LayoutChoice& c, const Places& places, const std::vector<StageTimes>& stages,
                                const Held& held, int rank) {
  const std::vector<Span>& spans = stages_of(c);
  TaskTimes times{{}, held.plan, cluster_.links_beside};
  times.seconds.reserve(program.tasks.size());
  const GroupPlacement& replicas = places.replicas[std::size_t(rank)];
  std::map<std::tuple<Op, int, Index, Index>, double> known;
  const auto computes = [&](const Task& t) {
    const auto [entry, fresh] = known.try_emplace({t.op, t.chunk, t.parts.first, t.parts.last});
    if (!fresh) return entry->second;
    const std::size_t stage = std::size_t(t.chunk * c.pipeline + rank);
    const Index before = spans[stage].first == 0 ? 1 : 0;  // parts before the first layer
    for (const auto& kind : stages[stage].parts) {
      const std::vector<PartTimes>& of_types = *kind;
      double sum = 0;
      for (Index part = t.parts.first; part < t.parts.last; ++part) {
        const Index layer = spans[stage].first + part - before;
        const PartTimes& p = part < before               ? of_types.front()
                             : layer < spans[stage].last ? of_types[std::size_t(types_.of_layer(layer)) + 1]
                                                         : of_types.back();
        sum += t.op == Op::forward            ? p.forward
               : t.op == Op::backward_input   ? p.backward_input
               : t.op == Op::backward_weights ? p.backward_weights
                                              : p.backward_input + p.backward_weights;
      }
      entry->second = std::max(entry->second, sum);
    }
    return entry->second;
  };
  const auto transfers = [&](Operation op, const std::vector<double>& all) {
    double sum = 0;
    for (const double bytes : all)
      if (bytes > 0) sum += gyr::seconds_of(op, {1, Index(bytes)}, replicas, cluster_);
    return sum;
  };
  const auto seconds = [&](const Task& t) -> double {
    switch (t.op) {
      case Op::forward:
      case Op::backward:
      case Op::backward_input:
      case Op::backward_weights: return computes(t);
      case Op::send: return stages[std::size_t(t.payload == Payload::activations ? rank : t.peer)].message;
      case Op::reduce:
        return transfers(c.shard == Shard::none ? Operation::all_reduce : Operation::reduce_scatter, held.reduced[std::size_t(t.bucket)]);
      case Op::gather: return transfers(Operation::all_gather, held.gathered[std::size_t(t.bucket)]);
      case Op::step: return step_of(c, rank);
      case Op::receive:
      case Op::clear: return 0;
    }
    return 0;
  };
  for (const Task& task : program.tasks) times.seconds.push_back(seconds(task));
  // As a prediction has it, those behind the step are alike.
  double gathered = 0;
  std::vector<std::size_t> behind;
  for (std::size_t i = 0; i < program.tasks.size() && c.shard != Shard::weights; ++i)
    if (program.tasks[i].op == Op::gather) behind.push_back(i), gathered += times.seconds[i];
  for (const std::size_t i : behind) times.seconds[i] = gathered / double(behind.size());
  return times;
}

double LayoutFloor::seconds_of(const EngineConfig& config, const LayoutChoice& c, const Places& places, const std::vector<StageTimes>& times,
                               const std::vector<const Held*>& held, int micros) {
  std::vector<Program> programs;
  std::vector<TaskTimes> of_tasks;
  for (int rank = 0; rank < c.pipeline; ++rank) {
    const Held& of_rank = *held[std::size_t(rank)];
    programs.push_back(compile(config.schedule, {c.pipeline, c.virtual_stages, micros}, rank, of_rank.plan));
    of_tasks.push_back(times_of(programs.back(), c, places, times, of_rank, rank));
  }
  return timeline(programs, of_tasks).makespan + cluster_.fit.step;
}

LayoutFloor::Floor LayoutFloor::of_programs(const LayoutChoice& c) {
  const RunConfig run = with(run_, c);
  const Layout layout = layout_of(c);
  const EngineConfig config = engine_config(run, layout);
  const PartRun& parts = runs_.of(c, config.schedule == zero_bubble);
  const Places& places = places_of(c, parts, true);
  const std::vector<StageTimes> times = times_of(c, parts, places, {});
  std::vector<const Held*> held;
  Floor floor;
  for (int rank = 0; rank < c.pipeline; ++rank) {
    held.push_back(&held_by(run, layout, rank));
    floor.bytes = std::max(floor.bytes, held.back()->state + bytes_of_kept(c, parts.ranks.front(), rank));
  }
  floor.seconds = walked_seconds(config.micros, c.pipeline, [&](int micros) { return seconds_of(config, c, places, times, held, micros); }) *
                  (is_walked(config.micros, c.pipeline) ? rounding : continued);
  return floor;
}

// Each chunk of a rank keeps the micro-batches between its forward and its backward.
double LayoutFloor::bytes_of_kept(const LayoutChoice& c, const PartsOfRank& parts, int rank) {
  const std::vector<StageContent>& contents = contents_of(c);
  double sum = 0;
  for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
    const std::vector<int>& layers = contents[std::size_t(chunk * c.pipeline + rank)].layers;
    double kept = 0;
    for (std::size_t type = 0; type < layers.size(); ++type) kept += double(layers[type]) * double(parts.parts[type + 1].kept);
    sum += kept * in_flight(c, rank, chunk);
  }
  return sum;
}

// Beside an even part of the weights: where each rank has one of the mixers, of the one that keeps less.
double LayoutFloor::least_kept(const LayoutChoice& c, const PartRun& run, int rank) {
  double least = bytes_of_kept(c, run.ranks.front(), rank);
  for (const PartsOfRank& parts : run.ranks)
    if (c.attention_ranks > 0) least = std::min(least, bytes_of_kept(c, parts, rank));
  return least;
}

int LayoutFloor::in_flight(const LayoutChoice& c, int rank, int chunk) {
  const int micros = micros_of(run_, c);
  const Schedule schedule = schedule_of(c);
  if (schedule == all_forward_all_backward) return micros;
  const int enough = std::min(micros, micros % c.pipeline + 4 * c.pipeline);
  auto& known = in_flight_[{c.pipeline, c.virtual_stages * 8 + c.schedule, enough, rank}];
  if (known.empty()) {
    const std::vector<Turn> turns = schedule({c.pipeline, c.virtual_stages, std::max(1, enough)}, rank);
    for (int each = 0; each < c.virtual_stages; ++each) known.push_back(gyr::in_flight(turns, each));
  }
  return known[std::size_t(chunk)];
}

// A pass over rows reads the rows, of which there are as many times more or fewer, and little besides that stays as it is: less than as much as
// `others` rows are. Tables of distances may be large.
LayoutFloor::Scale LayoutFloor::scale_of(const LayoutChoice& c, Index context) const {
  constexpr double others = 16;
  const double counted = double(run_.lengths().text) / double(context);
  // Where tensor ranks have shares of the rows, the last may be padded, and of more rows less of it.
  const double padded = c.sequence ? counted / (c.tensor * std::ceil(counted / c.tensor)) : 1;
  const double rows = padded * double(c.micro_batch_size) * double(context) / double(c.context);
  const double passed = run_.model.attention.relative_bias.buckets > 0 ? 0 : std::max(0.0, 1 - others / counted);
  return {rows, rows <= 1 ? rows : 1 + (rows - 1) * passed, false, context == c.context};
}

LayoutFloor::Floor LayoutFloor::of_best(const LayoutChoice& shape, const Places& places, const std::vector<StageTimes>& times) {
  LayoutChoice best = shape;
  for (const int schedule : schedules_of(run_, shape, micros_of(run_, shape)))
    if (schedules[std::size_t(schedule)].schedule == zero_bubble) best.schedule = schedule;
  // Where anything is cut, sums take half and weights are gathered; where nothing is, neither.
  double least = std::numeric_limits<double>::infinity();
  for (const Shard shard : shards_of(run_, shape)) {
    best.shard = std::min(shard, Shard::optimizer);
    least = std::min(least, seconds_of(best, places, times));
  }
  best.shard = shards_of(run_, shape).back();
  return {least, bytes_of_state(best)};
}

double LayoutFloor::meeting(const LayoutChoice& c) const {
  const Layout layout = layout_of_settled(with(run_.parallel, c), c.data, c.attention_ranks, {});
  const GroupPlacement ranks = placement_of(ranks_of(layout, 0, name_of(Axis::context).data()), cluster_);
  const double one = ranks.nodes > 1 ? std::min(cluster_.network.latency, cluster_.islands.latency) : cluster_.node.latency;
  switch (c.context_mode) {
    case ContextMode::ring: return (c.context - 1) * one;
    case ContextMode::heads: return 2 * one;
    case ContextMode::balanced: return std::max(0, c.context / 2 - 1) * one;
  }
  return 0;
}

LayoutFloor::Floor LayoutFloor::of_shape(const LayoutChoice& shape) {
  LayoutChoice best = shape, base = shape;
  best.shard = shards_of(run_, shape).back();
  if (const double bytes = bytes_of_state(best); bytes > cluster_.device.memory) return {0, bytes};
  base.context = base.expert = 1, base.context_mode = ContextMode::ring, base.micro_batch_size = 1;
  const PartRun& run = runs_.of(base);
  const Places& places = places_of(shape, run, false);
  std::vector<StageTimes> times = times_of(shape, run, places, scale_of(shape, 1));
  if (shape.context == 1) return of_best(shape, places, times);
  const double waits = meeting(shape);
  const std::vector<StageContent>& contents = contents_of(shape);
  for (std::size_t stage = 0; stage < contents.size(); ++stage)
    for (std::size_t type = 0; type < contents[stage].layers.size(); ++type)
      if (std::string_view("P*B").find(types_.pattern()[type]) != std::string_view::npos) {
        times[stage].forward += waits * contents[stage].layers[type];
        if (run_.optimizer.frozen.empty()) times[stage].backward_input += waits * contents[stage].layers[type];
      }
  return of_best(shape, places, times);
}

LayoutFloor::Floor LayoutFloor::of_shared(const LayoutChoice& shape) {
  LayoutChoice base = shape;
  base.micro_batch_size = 1;
  const PartRun& run = runs_.of(base);
  const Places& places = places_of(shape, run, true);
  return of_best(shape, places, times_of(shape, run, places, scale_of(shape, shape.context)));
}

LayoutFloor::Floor LayoutFloor::of(const LayoutChoice& c) {
  const PartRun& run = runs_.of(c);
  const Places& places = places_of(c, run, true);
  Floor floor{seconds_of(c, places, times_of(c, run, places, {})), 0};
  for (int rank = 0; rank < c.pipeline; ++rank) floor.bytes = std::max(floor.bytes, bytes_of_state(c, rank) + least_kept(c, run, rank));
  return floor;
}

}  // namespace gyr
