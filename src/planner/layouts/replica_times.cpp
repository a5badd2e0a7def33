// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/layouts/replica_times.hpp"

#include <algorithm>

#include "src/base/precision.hpp"
#include "src/planner/machine/collective.hpp"

namespace gyr {

namespace {

double passes_of(const Cluster& cluster) {
  double most = 0;
  for (int island = 0; island < cluster.different_islands(); ++island)
    most = std::max(most, cluster.island(island).fit.memory * cluster.island(island).device.memory_bandwidth);
  return most;
}

}  // namespace

ReplicaBound::ReplicaBound(const RunConfig& run, const Cluster& cluster, StageContents& contents, WeightShards& weights, bool measured)
    : run_(run), cluster_(cluster), contents_(contents), weights_(weights), measured_(measured), passes_(passes_of(cluster)) {}

const std::vector<ReplicaTimes>& ReplicaBound::of(const LayoutChoice& c, const Places& places) {
  const auto [known, fresh] = known_.try_emplace(WeightKey(c));
  if (fresh)
    for (int rank = 0; rank < c.pipeline; ++rank) known->second.push_back(times_of(c, places, rank));
  return known->second;
}

ReplicaTimes ReplicaBound::times_of(const LayoutChoice& c, const Places& places, int rank) {
  const std::vector<PartElements>& elements = weights_.of_stages(c);
  const DType narrow = precision_of(run_.train.precision), wide = accumulator_of(narrow);
  Elements trained, all;
  for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
    const PartElements& e = elements[std::size_t(chunk * c.pipeline + rank)];
    trained += e.trained_on(c), all += e.sharded_on(c);
  }
  ReplicaTimes times;
  times.step = step_of(c, rank);
  if (const double n = c.token_ranks(); n > 1) {
    const Operation summing = c.shard == Shard::none ? Operation::all_reduce : Operation::reduce_scatter;
    const double travel = double(size_of(run_.parallel.reduce_dtype.value_or(wide)));
    const auto gathering = [&](const Elements& e) {
      return seconds_of(Operation::all_gather, {e.dense / n, e.experts / (n / c.expert)}, double(size_of(narrow)), places, rank);
    };
    times.reduce = seconds_of(summing, trained, travel, places, rank);
    if (c.shard != Shard::none && trained.sum() > 0) times.gather = gathering(all);
    if (const SharingBuffers sharing_buffers = rotating_elements(c, rank); sharing_buffers.trained.sum() > 0) {
      times.clear = clearing(sharing_buffers.trained.sum() * double(size_of(wide)));
      times.sharing_buffers = seconds_of(summing, sharing_buffers.trained, travel, places, rank) +
                              (c.shard == Shard::weights ? 2 * gathering(sharing_buffers.gathered) : 0);
    }
  }
  return times;
}

// Seconds of one transfer for the expert weights and one for all other weights.
double ReplicaBound::seconds_of(Operation op, const Elements& e, double bytes_of_one, const Places& places, int rank) const {
  double sum = 0;
  for (const bool of_experts : {false, true})
    if (const double bytes = (of_experts ? e.experts : e.dense) * bytes_of_one; bytes > 0)
      sum += gyr::seconds_of(op, {1, Index(bytes)}, places.replicas_of(of_experts, rank), cluster_);
  return sum;
}

// Elements in buckets that share buffers, which happens if a chunk has several layers and no bucket is larger than a
// layer. With virtual stages one bucket may belong to two chunks that use it in succession, so one is subtracted. Of
// the gathered buckets, two per pass are still present from the previous pass, so four are subtracted.
ReplicaBound::SharingBuffers ReplicaBound::rotating_elements(const LayoutChoice& c, int rank) {
  SharingBuffers sharing_buffers;
  if (c.shard < Shard::gradients || c.attention_ranks > 0) return sharing_buffers;
  const double wide = double(size_of(accumulator_of(precision_of(run_.train.precision))));
  const std::vector<StageContent>& contents = contents_.of(c).contents;
  for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
    const std::vector<int>& layers = contents[std::size_t(chunk * c.pipeline + rank)].layers;
    SharingBuffers of_chunk, largest;
    int count = 0;
    for (std::size_t type = 0; type < layers.size(); ++type) {
      if (layers[type] == 0) continue;
      const Elements trained = weights_.of_type(type).trained_on(c), gathered = weights_.of_type(type).sharded_on(c);
      if (trained.sum() * wide < double(run_.parallel.bucket_bytes)) return {};
      of_chunk.trained += layers[type] * trained, of_chunk.gathered += layers[type] * gathered, count += layers[type];
      largest = {most_of(largest.trained, trained), most_of(largest.gathered, gathered)};
    }
    if (count < 2) continue;
    sharing_buffers.trained += of_chunk.trained.less((c.virtual_stages > 1 ? 1 : 0) * largest.trained);
    sharing_buffers.gathered += of_chunk.gathered.less(4 * largest.gathered);
  }
  return sharing_buffers;
}

// Bytes moved by zeroing the gradients, by the gradient norm, and by the update of master weights, states and weights.
// Sharded buffers have gaps between weights, and the first shard, which represents all shards, may contain all gaps.
double ReplicaBound::step_of(const LayoutChoice& c, int rank) {
  if (measured_) return 0;
  constexpr double gap = 64;
  const DType narrow = precision_of(run_.train.precision), wide = accumulator_of(narrow);
  const std::vector<PartElements>& elements = weights_.of_stages(c);
  Elements trained, masters;
  double gaps = 0;
  for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
    const PartElements& e = elements[std::size_t(chunk * c.pipeline + rank)];
    const Elements here = e.trained_on(c);
    trained += here, masters += here.less({e.wide}), gaps += gap * e.weights;
  }
  const auto part = [&](const Elements& e, Shard level) {
    return c.shard >= level && c.token_ranks() > 1 ? std::max(0.0, part_of(e, c, level) - gaps) : e.sum();
  };
  const double bytes = (1 + run_.optimizer.fewest_values_moved()) * part(trained, Shard::optimizer) * double(size_of(wide)) +
                       (narrow != wide ? part(masters, Shard::optimizer) * double(size_of(narrow)) : 0) +
                       part(trained, Shard::gradients) * double(size_of(wide));
  return bytes / passes_;
}

}  // namespace gyr
