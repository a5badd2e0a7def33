// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/layouts/stage_times.hpp"

#include <algorithm>
#include <cmath>

#include "src/planner/machine/collective.hpp"

namespace gyr {

namespace {

double with_copies(const PartSeconds& s, double copying, const Cluster& island) {
  return s.transfers + (island.host.overlaps ? std::max(s.compute, copying) : s.compute + copying);
}

}  // namespace

StageBound::StageBound(const RunConfig& run, const Cluster& cluster, StageContents& contents, bool backwards, bool measured)
    : run_(run), cluster_(cluster), contents_(contents), types_(contents.types()), backwards_(backwards), measured_(measured) {}

PartSeconds StageBound::seconds_of(const PartCount& count, const Place& place, const Scale& scale) const {
  PartSeconds sum;
  if (count.compute.empty()) return sum;
  if (scale.exact) sum.compute = count.compute[std::size_t(place.island)];
  else {
    const KernelBound& floor = count.floor[std::size_t(place.island)];
    sum.compute = scale.rows * floor.gemms + scale.passes * floor.passes + (scale.attention ? scale.rows * floor.fused : 0);
  }
  for (const auto& [c, line] : count.transfers) {
    const double bytes = scale.exact ? double(line.traffic.bytes) : 0.999 * scale.rows * double(line.traffic.bytes);
    const Index calls = scale.calls ? line.traffic.calls : 1;
    sum.transfers += gyr::seconds_of(line.operation, {calls, Index(bytes)}, place.groups[std::size_t(c)], cluster_);
  }
  for (const OverlapCount& h : count.hidden[std::size_t(place.island)]) {
    const double bytes = scale.exact ? double(h.bytes) : 0.999 * scale.rows * double(h.bytes);
    const double one = gyr::seconds_of(h.operation, {1, Index(bytes)}, place.groups[std::size_t(h.communicator)], cluster_);
    sum.transfers -= seconds_hidden(h, one, scale.exact ? h.overlapped : measured_ ? one : scale.most * h.overlapped, cluster_);
  }
  return sum;
}

// If mixers are on different tensor-parallel ranks, the first ranks compute attention while the others compute the
// scan.
bool StageBound::attends(char symbol, const PartsOfRank& rank, const Scale& scale) const {
  const LayerTraits& traits = layer_type(symbol).traits;
  const bool of_team = !traits.without_mixers || scale.attention_ranks == 0 || rank.tensor < scale.attention_ranks;
  return traits.attention == AttentionKind::full && of_team;
}

// Recomputation is linear in the offloaded fraction, except for a kernel that is bound by GEMM rate for some row counts
// and by memory for others. Such kernels are bounded by kind (KernelBound).
TimesThere StageBound::times_there(const PartsOfRank& rank, const Place& place, const Scale& scale, const FractionRange& fractions) const {
  TimesThere there{{}, cluster_.island(place.island)};
  there.parts.reserve(rank.parts.size() + rank.staying.size());
  Scale by_kind = scale;
  by_kind.exact = false;
  for (const std::vector<Part>* parts : {&rank.parts, &rank.staying})
    for (std::size_t i = 0; i < parts->size(); ++i) {
      const Part& part = (*parts)[i];
      Scale here = scale;
      here.calls = scale.calls || parts != &rank.parts || i + 1 < parts->size();
      PartTimes& t = there.parts.emplace_back(PartTimes{seconds_of(part.forward, place, here)});
      const std::size_t type = parts == &rank.parts ? i - 1 : i;  // wraps around for the embedding; out of range for the head
      const double waits = type < types_.pattern().size() && attends(types_.pattern()[type], rank, scale) ? scale.waits : 0;
      t.forward.transfers += waits;
      if (!backwards_) continue;  // some backwards may end early, and the layers before them are not offloaded
      t.backward_input = seconds_of(part.backward_input, place, here), t.backward_weights = seconds_of(part.backward_weights, place, here);
      t.backward_input.transfers += waits;
      if (parts != &rank.parts) continue;
      if (!rank.least.empty())
        t.backward_input.compute =
            std::max(t.backward_input.compute, between(seconds_of(rank.least[i].backward_input, place, by_kind).compute,
                                                       seconds_of(part.backward_input, place, by_kind).compute, fractions.most));
      if (const double bytes = rank.copied(i, fractions.least); bytes > 0) t.copying = seconds_of_copies(scale.passes * bytes, there.island);
    }
  return there;
}

// A stage takes as long as its slowest rank.
void StageBound::add_stage(StageTimes& t, const StageContent& content, const TimesThere& there) const {
  PartTimes sum;
  const auto add = [&](std::size_t place, int count) {
    const PartTimes& part = there.parts[place];
    sum.forward += count * part.forward, sum.backward_input += count * part.backward_input;
    sum.backward_weights += count * part.backward_weights, sum.copying += count * part.copying;
  };
  const std::size_t types = content.layers.size();
  if (content.first) add(0, 1);
  const bool offloads = there.parts.size() > types + 2;
  for (std::size_t type = 0; type < types; ++type) {
    add(type + 1, content.layers[type] - (offloads ? content.staying[type] : 0));
    if (offloads && content.staying[type] > 0) add(types + 2 + type, content.staying[type]);
  }
  if (content.last) add(types + 1, 1);
  t.forward = std::max(t.forward, with_copies(sum.forward, sum.copying, there.island));
  const double backward_input = with_copies(sum.backward_input, sum.copying, there.island), backward_weights = sum.backward_weights.sum();
  if (backward_input + backward_weights > t.backward()) t.backward_input = backward_input, t.backward_weights = backward_weights;
}

std::vector<StageTimes> StageBound::of(const LayoutChoice& c, const PartRun& run, const Places& places, const Scale& scale,
                                       const FractionRange& fractions) {
  const std::vector<StageContent>& contents = contents_.of(c).contents;
  std::vector<StageTimes> times(contents.size());
  for (std::size_t i = 0; i < run.ranks.size(); ++i) {
    std::vector<std::shared_ptr<const TimesThere>> seconds;  // part times, one entry per kind of place
    for (const Place& kind : places.kinds[i])
      seconds.push_back(std::make_shared<const TimesThere>(times_there(run.ranks[i], kind, scale, fractions)));
    for (std::size_t stage = 0; stage < contents.size(); ++stage)
      for (const int kind : places.kinds_of[i][stage % std::size_t(c.pipeline)]) {
        const std::shared_ptr<const TimesThere>& there = seconds[std::size_t(kind)];
        add_stage(times[stage], contents[stage], *there);
        if (scale.exact) times[stage].parts.push_back(there);
      }
  }
  for (std::size_t stage = 0; stage < contents.size() && c.pipeline > 1; ++stage)
    times[stage].message = gyr::seconds_of(Operation::send, message_of(run_, c, contents_.of(c).spans[stage].last),
                                           places.neighbours[stage % std::size_t(c.pipeline)], cluster_);
  return times;
}

const std::vector<StageTimes>& StageBound::of(const LayoutChoice& c, const PartRun& run, const Places& places, const FractionRange& fractions) {
  constexpr std::size_t most_known = 1000;
  const Exact key{&run, &places, c.virtual_stages, fractions.least, fractions.most};
  if (const auto known = exact_.find(key); known != exact_.end()) return known->second;
  if (exact_.size() >= most_known) exact_.clear();
  return exact_.emplace(key, of(c, run, places, Scale(), fractions)).first->second;
}

// Factors for another number of rows. A memory-bound kernel reads its rows, which scale, and other data that does not
// scale but is smaller than `other_passes` rows. Relative-position bias tables may be large, so nothing is assumed for them.
Scale StageBound::scale_of(const LayoutChoice& c, Index context) const {
  constexpr double other_passes = 16;
  const double counted = double(run_.lengths().text) / double(context);
  // With sequence parallelism each tensor-parallel rank has a shard of the rows, and the last shard may be padded. More
  // rows have relatively less padding.
  const double padded = c.sequence ? counted / (c.tensor * std::ceil(counted / c.tensor)) : 1;
  const double sequences = double(c.micro_batch_size) * double(context) / double(c.context), rows = padded * sequences;
  const double passed = run_.model.attention.relative_bias.buckets > 0 ? 0 : std::max(0.0, 1 - other_passes / counted);
  return {rows, rows <= 1 ? rows : 1 + (rows - 1) * passed, false, context == c.context, std::max(1.0, sequences), sequences >= 1};
}

double StageBound::meeting(const LayoutChoice& c, const Places& places) const {
  double one = places.sharing.nodes > 1 ? std::min(cluster_.network.latency, cluster_.islands.latency) : cluster_.node.latency;
  for (const Cluster& part : cluster_.parts) one = std::min({one, part.network.latency, part.node.latency, cluster_.islands.latency});
  switch (c.context_mode) {
    case ContextMode::ring: return (c.context - 1) * one;
    case ContextMode::heads: return 2 * one;
    case ContextMode::balanced: return std::max(0, c.context / 2 - 1) * one;
  }
  return 0;
}

// The offloaded activations of a layer are copied back during the backward of the next layer. Those of the last layer
// of the stage are copied back during its own backward.
double StageBound::seconds_of(const Task& t, const Span& stage, const TimesThere& there) const {
  const std::vector<PartTimes>& of_types = there.parts;
  const Index before = stage.first == 0 ? 1 : 0;  // number of parts before the first layer: the embedding counts as one
  const std::size_t types = std::size_t(types_.count());
  PartSeconds sum;
  double copying = 0;
  Index calls = 0;
  const auto copies = [&](Index layer) {
    if (contents_.offloads(stage, layer)) copying += of_types[std::size_t(types_.of_layer(layer)) + 1].copying, ++calls;
  };
  for (Index part = t.parts.first; part < t.parts.last; ++part) {
    const Index layer = stage.first + part - before;
    const std::size_t type = part >= before && layer < stage.last ? std::size_t(types_.of_layer(layer)) : 0;
    const PartTimes& p = part < before                                          ? of_types.front()
                         : layer >= stage.last                                  ? of_types[types + 1]
                         : !run_.offload.on || contents_.offloads(stage, layer) ? of_types[type + 1]
                                                                                : of_types[types + 2 + type];
    if (t.op == Op::forward) sum += p.forward;
    if (t.op == Op::backward || t.op == Op::backward_input) sum += p.backward_input;
    if (t.op == Op::backward || t.op == Op::backward_weights) sum += p.backward_weights;
    if (part < before || layer >= stage.last || t.op == Op::backward_weights) continue;
    if (t.op == Op::forward || layer + 1 == stage.last) copies(layer);
    if (t.op != Op::forward) copies(layer - 1);
  }
  return sum.sum() + std::max(0.0, copying - compute_hiding_copies(sum.compute, calls, t.parts.size(), there.island));
}

}  // namespace gyr
