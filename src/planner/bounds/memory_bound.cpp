// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/bounds/memory_bound.hpp"

#include <algorithm>

#include "src/planner/layouts/layout_space.hpp"

namespace gyr {

namespace {

// The cluster with the largest device memory and the largest host memory of any island.
Cluster largest_of(const Cluster& cluster) {
  Cluster largest = cluster;
  for (const Cluster& part : cluster.parts) {
    if (part.device.usable() > largest.device.usable()) largest.device.memory = part.device.memory, largest.device.reserve = part.device.reserve;
    if (part.host_memory_left(0) > largest.host_memory_left(0)) largest.host.memory = part.host_memory_left(0);
  }
  return largest;
}

}  // namespace

Schedule schedule_of(const LayoutChoice& c) { return c.virtual_stages > 1 ? interleaved : schedules[std::size_t(c.schedule)].schedule; }

MemoryBound::MemoryBound(const RunConfig& run, const Cluster& cluster, StageContents& contents, WeightShards& weights, bool backwards)
    : run_(run), cluster_(cluster), largest_(largest_of(cluster)), contents_(contents), weights_(weights), types_(contents.types()),
      backwards_(backwards) {}

const MemoryTaken& MemoryBound::of_states(const LayoutChoice& c) {
  const auto [known, fresh] = states_.try_emplace(WeightKey(c));
  if (!fresh) return known->second;
  const std::vector<double>& bytes = weights_.bytes_of_states(c);
  for (int rank = 0; rank < c.pipeline; ++rank) add(known->second, c, rank, bytes[std::size_t(rank)]);
  return known->second;
}

MemoryTaken MemoryBound::of(const LayoutChoice& c, const PartRun& run, const FractionRange& fractions) {
  MemoryTaken taken;
  const std::vector<double>& states = weights_.bytes_of_states(c);
  for (int rank = 0; rank < c.pipeline; ++rank)
    add(taken, c, rank, states[std::size_t(rank)] + least_kept(c, run, rank, fractions), least_on_host(c, run, rank, fractions));
  return taken;
}

void MemoryBound::add(MemoryTaken& taken, const LayoutChoice& c, const PartRun& run, const FractionRange& fractions, int rank, double states) {
  const PartsOfRank& first = run.ranks.front();
  add(taken, c, rank, states + bytes_of_kept(c, run, first, rank, fractions), bytes_on_host(c, first, rank, fractions));
}

// Adds a rank. If attention and SSM mixers are on different ranks, the even shard may be smaller than that of the first
// rank; then it is compared with the largest memory of any island.
void MemoryBound::add(MemoryTaken& taken, const LayoutChoice& c, int rank, double bytes, double host) {
  if (c.attention_ranks > 0) return taken.add(bytes, host, largest_);
  for (const int island : contents_.of(c).islands[std::size_t(rank)]) taken.add(bytes, host, cluster_.island(island));
}

// Bytes of activations on a rank without offload. Each chunk keeps its micro-batches between forward and backward. One
// micro-batch also needs either the temporaries of the head or those of its last layer's backward; with split backwards
// this requires a dry run that splits them too.
double MemoryBound::bytes_of_kept(const LayoutChoice& c, const PartRun& run, const PartsOfRank& parts, int rank, const FractionRange& fractions) {
  if (run_.offload.on) return bytes_of_offloading(c, parts, rank, fractions);
  const Stages& stages = contents_.of(c);
  const bool as_it_goes_back = backwards_ && run.split == (schedule_of(c) == zero_bubble);
  double sum = 0, more = 0;
  for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
    const std::size_t stage = std::size_t(chunk * c.pipeline + rank);
    const std::vector<int>& layers = stages.contents[stage].layers;
    double kept = 0;
    for (std::size_t type = 0; type < layers.size(); ++type) kept += double(layers[type]) * double(parts.parts[type + 1].kept);
    sum += kept * in_flight(c, rank, chunk);
    if (!as_it_goes_back) continue;
    if (stages.contents[stage].last) more = std::max(more, double(parts.parts.back().most));
    if (const Span& span = stages.spans[stage]; span.size() > 0)
      more = std::max(more, double(parts.parts[std::size_t(types_.of_layer(span.last - 1)) + 1].back));
  }
  return sum + more;
}

// Bytes of activations on a rank with offload. Each micro-batch in flight keeps the activations of layers that are not
// offloaded and, except on the last stage, the message to the next stage. One micro-batch also needs either the memory
// of one layer's backward plus the activations of the previous layer that are copied back meanwhile, or the temporaries
// of the head. With split backwards, a layer needs only its kept activations.
double MemoryBound::bytes_of_offloading(const LayoutChoice& c, const PartsOfRank& parts, int rank, const FractionRange& fractions) {
  if (!backwards_) return 0;
  const Stages& stages = contents_.of(c);
  const std::size_t types = std::size_t(types_.count());
  const bool splits = schedule_of(c) == zero_bubble;
  double sum = 0, more = 0;
  for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
    const std::size_t stage = std::size_t(chunk * c.pipeline + rank);
    const StageContent& content = stages.contents[stage];
    const Span& span = stages.spans[stage];
    double kept = content.last ? 0 : double(message_of(run_, c, span.last).bytes);
    for (std::size_t type = 0; type < types; ++type) kept += double(content.staying[type]) * double(parts.staying[type].kept);
    sum += kept * in_flight(c, rank, chunk);
    if (content.last) more = std::max(more, double(parts.parts[types + 1].most));
    for (Index layer = span.first; layer < span.last; ++layer) {
      if (!contents_.offloads(span, layer)) continue;
      const double before = contents_.offloads(span, layer - 1) ? parts.copied(std::size_t(types_.of_layer(layer - 1)) + 1, fractions.least) : 0;
      const std::size_t type = std::size_t(types_.of_layer(layer));
      const double back = double(splits ? parts.staying[type].kept : parts.parts[type + 1].most);
      more = std::max(more, back + before - kept);
    }
  }
  return sum + more;
}

double MemoryBound::bytes_on_host(const LayoutChoice& c, const PartsOfRank& parts, int rank, const FractionRange& fractions) {
  if (!run_.offload.on || !backwards_) return 0;
  const Stages& stages = contents_.of(c);
  double sum = 0;
  for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
    const StageContent& content = stages.contents[std::size_t(chunk * c.pipeline + rank)];
    double offloaded = 0;
    for (std::size_t type = 0; type < content.layers.size(); ++type)
      offloaded += (content.layers[type] - content.staying[type]) * parts.copied(type + 1, fractions.least);
    sum += offloaded * in_flight(c, rank, chunk);
  }
  return sum;
}

// Bytes of activations besides the evenly sharded weights. If each rank computes only one of the mixers, this is the
// smaller value of the two.
double MemoryBound::least_kept(const LayoutChoice& c, const PartRun& run, int rank, const FractionRange& fractions) {
  double least = bytes_of_kept(c, run, run.ranks.front(), rank, fractions);
  for (const PartsOfRank& parts : run.ranks)
    if (c.attention_ranks > 0) least = std::min(least, bytes_of_kept(c, run, parts, rank, fractions));
  return least;
}

double MemoryBound::least_on_host(const LayoutChoice& c, const PartRun& run, int rank, const FractionRange& fractions) {
  double least = bytes_on_host(c, run.ranks.front(), rank, fractions);
  for (const PartsOfRank& parts : run.ranks)
    if (c.attention_ranks > 0) least = std::min(least, bytes_on_host(c, parts, rank, fractions));
  return least;
}

int MemoryBound::in_flight(const LayoutChoice& c, int rank, int chunk) {
  const int micros = micros_of(run_, c);
  const Schedule schedule = schedule_of(c);
  if (schedule == all_forward_all_backward) return micros;
  const int enough = std::min(micros, micros % c.pipeline + 4 * c.pipeline);
  auto& known = in_flight_[{c.pipeline, c.virtual_stages * 8 + c.schedule, enough, rank}];
  if (known.empty()) {
    const std::vector<PipelineStep> steps = schedule({c.pipeline, c.virtual_stages, std::max(1, enough)}, rank);
    for (int each = 0; each < c.virtual_stages; ++each) known.push_back(gyr::in_flight(steps, each));
  }
  return known[std::size_t(chunk)];
}

}  // namespace gyr
