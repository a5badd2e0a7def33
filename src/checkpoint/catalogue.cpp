// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/catalogue.hpp"

#include <algorithm>
#include <map>

#include "modules/cost/flops.hpp"
#include "src/checkpoint/cut.hpp"
#include "src/engine/model/stage.hpp"

namespace gyr {

namespace {

using PlacedByStage = std::map<std::string, std::map<int, PlacedTensor>>;  // by name of the weight and stage

// Adds the weights of the rank at `position`. A weight that is already present has the same ZeRO shards there.
void add_weights_of(const ModelConfig& config, const WeightStorage& storage, const Layout& layout, int position, PlacedByStage& all) {
  Grid dry = Grid::dry_run(layout, position);
  Stage of_rank(config, storage.precision, dry, storage.trained, {}, storage.factors);
  const int stage = layout.coordinate(position, Axis::pipeline);
  for (const auto& p : of_rank.parameters().all())
    all[p->weight.name].emplace(
        stage, PlacedTensor{p->weight, stage, p->trained, p->flat_shard(), Content::weight, p->dtype(), p->tied, of_rank.parameters().in_int8(*p)});
}

// Positions that together hold all weights: per pipeline stage, one for each group of mixers (attention, SSM) and each
// expert-parallel rank.
std::vector<int> holders_of_all(const Layout& layout) {
  const Mixers mixers = layout.mixers();
  std::vector<int> holders;
  for (int position = 0; position < layout.ranks(); ++position) {
    const int tensor = layout.coordinate(position, Axis::tensor);
    const bool first_of_team = tensor == 0 || (mixers.are_separate() && tensor == int(mixers.ssm.first));
    if (first_of_team && layout.coordinate(position, token_axes) < layout.expert) holders.push_back(position);
  }
  return holders;
}

// Every weight, in the order of the model, once for each stage that stores it.
std::vector<PlacedTensor> stored_weights(const ModelConfig& config, const WeightStorage& storage, const Layout& layout) {
  PlacedByStage found;
  for (const int position : holders_of_all(layout)) add_weights_of(config, storage, layout, position, found);
  std::vector<PlacedTensor> all;
  for (const Weight& weight : declared_weights(config))
    for (const auto& [stage, placed] : found.at(weight.name)) all.push_back(placed);
  return all;
}

}  // namespace

std::vector<PlacedTensor> model_weights(const ModelConfig& config, DType precision, const Layout& layout, const Trained& trained) {
  std::vector<PlacedTensor> all = stored_weights(config, {precision, trained}, layout);
  std::erase_if(all, [](const PlacedTensor& placed) { return placed.tied; });
  return all;
}

PlacedWeights placed_weights(const ModelConfig& config, const WeightStorage& storage, const Layout& layout, Mesh mesh) {
  return {stored_weights(config, storage, layout), layout, std::move(mesh), storage.masters};
}

std::vector<PlacedTensor> model_weights(const ModelConfig& config, const Trained& trained) {
  return model_weights(config, DType::f32, grid_layout(1, 1, 1, {{0, config.layers()}}), trained);
}

PlacedTensor like_weight(const PlacedTensor& weight, Content content, DType precision) {
  PlacedTensor tensor = weight;
  tensor.content = content, tensor.dtype = accumulator_of(precision);
  return tensor;
}

StoredTensor stored_tensor(const PlacedTensor& t) { return stored_tensor(t.content, t.weight.name, t.dtype, t.weight.shape); }

std::vector<PlacedTensor> model_tensors(const ModelConfig& config, DType precision, const Layout& layout, const OptimizerConfig& optimizer) {
  std::vector<PlacedTensor> all;
  for (const PlacedTensor& weight : model_weights(config, precision, layout, optimizer.trained())) {
    all.push_back(weight);
    if (!weight.trained) continue;
    for (const Content content : optimizer.stored_with(weight.weight))
      if (content != Content::master || weight.dtype != accumulator_of(precision)) all.push_back(like_weight(weight, content, precision));
  }
  return all;
}

namespace {

Index row_bytes(const Move& b, const PlacedTensor& t) { return elements(b.box.count) / b.box.count[0] * size_of(t.dtype); }

// Boxes of part `part`, if the boxes are divided into `parts` parts of about equal bytes.
std::vector<Move> part_of(const std::vector<Move>& boxes, const std::vector<PlacedTensor>& tensors, Index part, Index parts) {
  const FileSplit file_split{bytes_of(boxes, tensors), parts};
  std::vector<Move> mine;
  Index offset = 0;
  for (const Move& b : boxes) {
    const Index bytes = row_bytes(b, tensors[b.tensor]);
    const auto [first, last] = file_split.rows_in(part, offset, bytes, b.box.count[0]);
    offset += bytes * b.box.count[0];
    if (first == last) continue;
    Move& m = mine.emplace_back(b);
    m.box.first[0] += first, m.box.count[0] = last - first;
  }
  return mine;
}

}  // namespace

std::vector<Move> contributed_boxes(const std::vector<PlacedTensor>& tensors, const Layout& layout, int position, bool spread) {
  std::vector<Move> copied, experts, zero_shards;  // replicated weights, replicated expert weights, and this rank's ZeRO shards
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const bool file_split = is_zero_sharded(tensors[t].content, layout.zero_shard());
    for (const Held& held : stored_at(tensors[t], layout, position))
      if (held.copy(weight_axes).rank == 0)
        (file_split ? zero_shards : tensors[t].weight.expert ? experts : copied).push_back({t, held.box, position});
  }
  std::vector<Move> mine = zero_shards;
  for (const std::vector<Move>& some : {copied, experts}) {
    if (some.empty()) continue;
    const Coordinate copy = layout.replicas(bool(tensors[some.front().tensor].weight.expert), position);
    const std::vector<Move> given = spread ? part_of(some, tensors, copy.rank, copy.ranks) : copy.rank == 0 ? some : std::vector<Move>();
    mine.insert(mine.end(), given.begin(), given.end());
  }
  std::stable_sort(mine.begin(), mine.end(), [](const Move& a, const Move& b) { return a.tensor < b.tensor; });
  return mine;
}

Index bytes_of(const std::vector<Move>& boxes, const std::vector<PlacedTensor>& tensors) {
  Index sum = 0;
  for (const Move& b : boxes) sum += elements(b.box.count) * size_of(tensors[b.tensor].dtype);
  return sum;
}

}  // namespace gyr
