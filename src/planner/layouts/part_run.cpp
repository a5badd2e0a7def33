// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/layouts/part_run.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "modules/cost/flops.hpp"
#include "src/config/layout_rules.hpp"
#include "src/engine/dry_run/dry_step.hpp"
#include "src/engine/dry_run/plan.hpp"
#include "src/train/engine_config.hpp"

namespace gyr {

LayerTypes::LayerTypes(const ModelConfig& model) {
  std::map<std::tuple<bool, char, bool>, int> known;
  for (Index layer = 0; layer < model.layers(); ++layer) {
    const char symbol = model.pattern[std::size_t(layer)];
    const auto [type, fresh] = known.try_emplace({layer < layers_of_encoder(model), symbol, is_larger_first(model, layer)}, int(pattern_.size()));
    if (fresh) pattern_ += symbol;
    of_layer_.push_back(type->second);
  }
}

namespace {

// Trained weights and adapter weights of each layer, by name without the layer number. Patterns in the deck may select
// layers by number.
std::map<Index, std::set<std::string>> trained_by_layer(const ModelConfig& model, const Trained& trained) {
  std::map<Index, std::set<std::string>> names;
  const std::string layers = "model.layers.";
  for (const Weight& w : declared_weights(model))
    if (w.name.starts_with(layers) && (w.of_adapter || trained(w))) {
      std::size_t digits = 0;
      const Index layer = std::stoll(w.name.substr(layers.size()), &digits);
      names[layer].insert(w.name.substr(layers.size() + digits) + (trained(w) ? "" : " stays"));
    }
  return names;
}

bool trained_alike(const RunConfig& run, const LayerTypes& types) {
  if (run.optimizer.frozen.empty() && !run.optimizer.lora) return true;
  ModelConfig each_once = run.model;
  each_once.pattern = types.pattern();
  auto all = trained_by_layer(run.model, run.optimizer.trained()), once = trained_by_layer(each_once, run.optimizer.trained());
  for (Index layer = 0; layer < run.model.layers(); ++layer)
    if (all[layer] != once[types.of_layer(layer)]) return false;
  return true;
}

}  // namespace

PartRuns::PartRuns(const RunConfig& run, const Cluster& cluster, const Profile* profile)
    : run_(run), cluster_(cluster), profile_(profile), types_(run.model), train_alike_(trained_alike(run, types_)) {}

namespace {

constexpr int staying_layers = 2;  // number of layers at the end of a model that are never offloaded

}  // namespace

PartRuns::Key PartRuns::key_of(const LayoutChoice& c, bool split) {
  return {c.tensor, c.attention_ranks, c.context, Index(c.context_mode), c.expert, c.sequence, c.micro_batch_size, c.recompute, split};
}

const PartRun& PartRuns::of(const LayoutChoice& c, bool split, const FractionRange& fractions) {
  if (!run_.offload.on) return counted(c, split, {});
  const std::pair key(key_of(c, split), fractions);
  const auto known = joined_.find(key);
  return known != joined_.end() ? known->second : joined_.emplace(key, joined(c, split, fractions)).first->second;
}

const PartRun& PartRuns::counted(const LayoutChoice& c, bool split, std::optional<double> fraction) {
  const std::pair key(key_of(c, split), fraction);
  const auto known = runs_.find(key);
  return known != runs_.end() ? known->second : runs_.emplace(key, run(c, split, fraction)).first->second;
}

// Weights are sharded (Shard::weights), so that each part becomes a task of its own. The rules of the deck were already
// checked for the full run.
PartRun PartRuns::run(const LayoutChoice& choice, bool split, std::optional<double> fraction) {
  LayoutChoice c = choice;
  c.pipeline = c.virtual_stages = 1, c.shard = Shard::weights;
  c.data = std::max(2, c.expert / std::gcd(c.expert, c.context));
  RunConfig run = with(run_, c);
  run.model.pattern = types_.pattern();
  if (!train_alike_) run.model.lora = run.optimizer.lora = {}, run.optimizer.frozen = {"*"};
  if (fraction) run.model.pattern.append(staying_layers, types_.pattern().back());
  run.offload = {fraction.has_value(), fraction.value_or(1)};
  run.parallel.layers.clear(), run.parallel.permutation.clear(), run.parallel.islands.clear();
  run.train.ramp.clear(), run.train.global_batch_size = c.data * c.micro_batch_size;
  const Layout layout = layout_from_choices(run.parallel, c.data, c.attention_ranks, {{0, run.model.layers()}});
  EngineConfig config = engine_config(run, layout);
  config.schedule = split ? zero_bubble : one_f_one_b;
  PartRun parts{{}, split};
  for (const int position : positions_of(layout, 0)) parts.ranks.push_back(counted_on(config, layout, position));
  if (fraction)
    for (PartsOfRank& rank : parts.ranks) rank.parts.erase(rank.parts.end() - 1 - staying_layers, rank.parts.end() - 1);
  return parts;
}

// Combines the runs with and without offload. During its backward, a layer has all its kept activations on the device.
// If the range is a single alpha, the peak of the offloaded run is used too, less the activations that are copied back
// for the previous layer.
PartRun PartRuns::joined(const LayoutChoice& c, bool split, const FractionRange& fractions) {
  const PartRun& staying = counted(c, split, {});
  PartRun all = counted(c, split, fractions.most);
  const bool one_fraction = fractions.least == fractions.most, one_stream = !has_encoder(run_.model);
  for (std::size_t i = 0; i < all.ranks.size(); ++i) {
    PartsOfRank& rank = all.ranks[i];
    const std::vector<Part>& kept = staying.ranks[i].parts;
    if (!one_fraction) rank.least = counted(c, split, fractions.least).ranks[i].parts;
    for (std::size_t p = 1; p + 1 < rank.parts.size(); ++p) {
      Part& part = rank.parts[p];
      const Index before = kept[p - 1].kept;  // kept bytes of the previous layer; 0 for the embedding
      part.most = std::max(kept[p].kept + kept[p].back, one_fraction && one_stream ? part.most - before : 0);
      part.kept = 0;
      rank.staying.push_back(kept[p]);
    }
  }
  return all;
}

PartsOfRank PartRuns::counted_on(const EngineConfig& config, const Layout& layout, int position) {
  DryStep step(counted_config(config), layout, position, {}, &known_);
  TaskCounts counts = step.engine().take_task_counts();
  if (plans_foreign_gpu(config)) take_memory(counts, DryStep(config, layout, position, {}, &known_).engine().take_task_counts());
  const Program program = compile(config.schedule, pipeline_shape(layout, 1), 0, step.engine().buckets());
  PartsOfRank rank{layout.coordinate(position, Axis::tensor), layout.coordinate(position, Axis::context), {}};
  rank.parts.resize(std::size_t(config.model.layers()) + 2);
  step.grid().visit([&](Communicator& c) { rank.communicators.push_back(c.name()); });
  Index alive = 0, begin = 0;
  for (std::size_t i = 0; i < counts.of_task.size(); ++i) {
    const Task& task = program.tasks[i];
    if (task.op != Op::forward && task.op != Op::backward && task.op != Op::backward_input && task.op != Op::backward_weights) continue;
    ensure(task.parts.size() == 1, "a task of {} parts is counted where a single part is expected", task.parts.size());
    const TaskCount& count = counts.counts[std::size_t(counts.of_task[i])];
    Part& part = rank.parts.at(std::size_t(task.parts.first));
    PartCount& into = task.op == Op::forward ? part.forward : task.op == Op::backward_weights ? part.backward_weights : part.backward_input;
    for (int island = 0; island < cluster_.different_islands(); ++island) {
      const Cluster& there = cluster_.island(island);
      into.compute.push_back(seconds_of(count.launches, config.precision, there, profile_));
      into.floor.push_back(profile_ ? KernelBound() : bound_of(count.launches, config.precision, there));
      into.hidden.push_back(hidden_of(count, config.precision, there, profile_));
    }
    for (std::size_t c = 0; c < count.traffic.size(); ++c)
      for (const TrafficCount::Line& line : count.traffic[c].lines())
        if (line.traffic.calls > 0) into.transfers.emplace_back(int(c), line);
    const Index before = std::exchange(alive, count.alive.after);
    if (task.op == Op::forward) {
      part.kept = std::max<Index>(0, alive - before);
      part.copied = copies_of(count.launches).bytes;
      if (task.parts.first == 0) begin = alive;
      if (task.parts.last == Index(rank.parts.size())) part.most = count.alive.most - before;
    } else if (task.op != Op::backward_weights && task.parts.last < Index(rank.parts.size())) {
      part.most = std::max<Index>(0, count.alive.most - begin);
      part.back = std::max<Index>(0, count.alive.most - before);
    }
  }
  rank.parts.front().kept = rank.parts.back().kept = 0;  // the counts of the first and the last part include the activations that enter them
  return rank;
}

}  // namespace gyr
