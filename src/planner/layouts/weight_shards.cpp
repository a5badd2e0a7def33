// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/layouts/weight_shards.hpp"

#include <algorithm>

#include "kernels/base/shape_counts.hpp"
#include "modules/cost/flops.hpp"
#include "src/base/precision.hpp"

namespace gyr {

namespace {

constexpr double shard_rounding = 1 - 1e-9;  // factor that absorbs rounding: the bound adds values in another order than a memory plan

}  // namespace

// If attention and SSM mixers are on different ranks, each rank has only one of them, so its full weights count as an
// even shard.
Elements PartElements::on(const LayoutChoice& c) const {
  return {sharded / c.tensor + (c.attention_ranks > 0 ? unsharded / c.tensor : unsharded), experts / c.tensor / c.expert};
}

Elements PartElements::trained_on(const LayoutChoice& c) const {
  return {trained_sharded / c.tensor + (c.attention_ranks > 0 ? trained_unsharded / c.tensor : trained_unsharded),
          trained_experts / c.tensor / c.expert};
}

Elements PartElements::sharded_on(const LayoutChoice& c) const { return {sharded / c.tensor, experts / c.tensor / c.expert}; }

double part_of(const Elements& e, const LayoutChoice& c, Shard level) {
  if (c.shard < level) return e.sum();
  return e.dense / c.token_ranks() + e.experts / (double(c.token_ranks()) / c.expert);
}

WeightKey::WeightKey(const LayoutChoice& c)
    : sizes{c.tensor, c.pipeline, c.virtual_stages, c.context, c.data, c.expert, c.attention_ranks, int(c.shard)} {}

std::size_t WeightKey::Hash::operator()(const WeightKey& key) const {
  std::size_t hash = 0;
  for (const int number : key.sizes) hash = mixed(hash, std::uint64_t(number));
  return hash;
}

WeightShards::WeightShards(const RunConfig& run, StageContents& contents, bool backwards)
    : run_(run), contents_(contents), parts_(std::size_t(contents.types().count()) + 2) {
  ModelConfig model = run.model;
  model.pattern = contents.types().pattern();
  const bool all_trained = backwards && !run.optimizer.lora && run.optimizer.frozen.empty();  // frozen patterns apply to the layers of the full model
  const std::string layers = "model.layers.";
  std::size_t part = 0;
  for (const Weight& w : declared_weights(model)) {
    if (w.name.starts_with(layers)) part = std::size_t(std::stoi(w.name.substr(layers.size()))) + 1;
    else if (part > 0) part = parts_.size() - 1;
    PartElements& e = parts_[part];
    const bool sharded = w.sharding(Axis::tensor) != nullptr;
    const double size = double(w.size());
    (w.expert ? e.experts : sharded ? e.sharded : e.unsharded) += size;
    if (w.storage == Storage::wide) e.wide += size;
    ++e.weights;
    if (all_trained) (w.expert ? e.trained_experts : sharded ? e.trained_sharded : e.trained_unsharded) += size;
  }
}

const std::vector<PartElements>& WeightShards::of_stages(const LayoutChoice& c) {
  const Stages& stages = contents_.of(c);
  const auto [known, fresh] = of_stages_.try_emplace(&stages);
  if (fresh)
    for (const StageContent& stage : stages.contents) known->second.push_back(of_stage(stage));
  return known->second;
}

PartElements WeightShards::of_stage(const StageContent& stage) const {
  PartElements sum;
  const auto add = [&](const PartElements& part, double times) {
    for (double PartElements::*of : {&PartElements::sharded, &PartElements::unsharded, &PartElements::experts, &PartElements::trained_sharded,
                                     &PartElements::trained_unsharded, &PartElements::trained_experts, &PartElements::wide, &PartElements::weights})
      sum.*of += times * part.*of;
  };
  if (stage.first) add(parts_.front(), 1);
  for (std::size_t type = 0; type < stage.layers.size(); ++type) add(parts_[type + 1], stage.layers[type]);
  if (stage.last) add(parts_.back(), 1);
  return sum;
}

const std::vector<double>& WeightShards::bytes_of_states(const LayoutChoice& c) {
  const auto [known, fresh] = of_states_.try_emplace(WeightKey(c));
  if (fresh)
    for (int rank = 0; rank < c.pipeline; ++rank) known->second.push_back(bytes_of_state(c, rank));
  return known->second;
}

double WeightShards::bytes_of_state(const LayoutChoice& c, int rank) {
  const DType narrow = precision_of(run_.train.precision), wide = accumulator_of(narrow);
  const std::vector<PartElements>& elements = of_stages(c);
  Elements all, trained;
  for (int chunk = 0; chunk < c.virtual_stages; ++chunk) {
    const PartElements& e = elements[std::size_t(chunk * c.pipeline + rank)];
    all += e.on(c), trained += e.trained_on(c);
  }
  const double of_wide = double(size_of(wide));
  return shard_rounding * (part_of(all, c, Shard::weights) * double(size_of(narrow)) + part_of(trained, c, Shard::gradients) * of_wide +
                           part_of(trained, c, Shard::optimizer) * of_wide * double(run_.optimizer.fewest_states() + (narrow != wide ? 1 : 0)));
}

}  // namespace gyr
