// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/catalogue.hpp"

#include <algorithm>
#include <set>

#include "src/checkpoint/cut.hpp"
#include "src/engine/stage.hpp"

namespace gyr {

namespace {

// Ranks that differ along these axes alone hold the same weights.
constexpr Axes copies_along = all_but(weight_axes + Axis::pipeline);

// Of a stage, as a rank of the tensor axis has them.
std::vector<PlacedTensor> weights_of(const ModelConfig& config, DType precision, const Layout& layout, int stage, Index tensor_rank,
                                     const Trained& trained) {
  const auto along = [&](Axis axis) { return axis == Axis::pipeline ? stage : axis == Axis::tensor ? int(tensor_rank) : 0; };
  Grid dry = Grid::dry_run(layout, layout.position_at(along));
  Stage of_rank(config, precision, dry, trained);
  std::vector<PlacedTensor> all;
  for (const auto& p : of_rank.parameters().all())
    if (!p->tied) all.push_back({p->weight, stage, p->trained, p->cut(), Content::weight, p->dtype()});
  return all;
}

// Of both teams, in the order of the model: that has a block's SSM before its attention. What both hold lies, and is cut, alike.
std::vector<PlacedTensor> joined(const std::vector<PlacedTensor>& attention, const std::vector<PlacedTensor>& ssm) {
  std::set<std::string> of_attention;
  for (const PlacedTensor& t : attention) of_attention.insert(t.weight.name);
  std::vector<PlacedTensor> all;
  auto next = ssm.begin();
  for (const PlacedTensor& t : attention) {
    for (; next != ssm.end() && !of_attention.contains(next->weight.name); ++next) all.push_back(*next);
    if (next != ssm.end() && next->weight.name == t.weight.name) ++next;
    all.push_back(t);
  }
  return all;
}

}  // namespace

std::vector<PlacedTensor> model_weights(const ModelConfig& config, DType precision, const Layout& layout, const Trained& trained) {
  std::vector<PlacedTensor> all;
  const Mixers mixers = layout.mixers();
  for (int s = 0; s < layout.size(Axis::pipeline); ++s) {
    auto stage = weights_of(config, precision, layout, s, mixers.attention.first, trained);
    if (mixers.are_apart()) stage = joined(stage, weights_of(config, precision, layout, s, mixers.ssm.first, trained));
    all.insert(all.end(), stage.begin(), stage.end());
  }
  return all;
}

std::vector<PlacedTensor> model_weights(const ModelConfig& config, const Trained& trained) {
  return model_weights(config, DType::f32, grid_layout(1, 1, 1, {{0, config.layers()}}), trained);
}

PlacedTensor beside(const PlacedTensor& weight, Content content, DType precision) {
  PlacedTensor tensor = weight;
  tensor.content = content, tensor.dtype = accumulator_of(precision);
  return tensor;
}

StoredTensor stored_tensor(const PlacedTensor& t) { return stored_tensor(t.content, t.weight.name, t.dtype, t.weight.shape); }

std::vector<PlacedTensor> model_tensors(const ModelConfig& config, DType precision, const Layout& layout, const Trained& trained) {
  std::vector<PlacedTensor> all;
  for (const PlacedTensor& weight : model_weights(config, precision, layout, trained)) {
    all.push_back(weight);
    if (!weight.trained) continue;
    all.push_back(beside(weight, Content::first_moment, precision));
    all.push_back(beside(weight, Content::second_moment, precision));
    if (weight.dtype != accumulator_of(precision)) all.push_back(beside(weight, Content::master, precision));
  }
  return all;
}

namespace {

Index row_bytes(const Move& b, const PlacedTensor& t) { return elements(b.box.count) / b.box.count[0] * size_of(t.dtype); }

// The boxes of one of `parts` equal parts.
std::vector<Move> part_of(const std::vector<Move>& boxes, const std::vector<PlacedTensor>& tensors, Index part, Index parts) {
  const Cut cut{bytes_of(boxes, tensors), parts};
  std::vector<Move> mine;
  Index offset = 0;
  for (const Move& b : boxes) {
    const Index bytes = row_bytes(b, tensors[b.tensor]);
    const auto [first, last] = cut.rows_in(part, offset, bytes, b.box.count[0]);
    offset += bytes * b.box.count[0];
    if (first == last) continue;
    Move& m = mine.emplace_back(b);
    m.box.first[0] += first, m.box.count[0] = last - first;
  }
  return mine;
}

}  // namespace

std::vector<Move> given_boxes(const std::vector<PlacedTensor>& tensors, const Layout& layout, int position, bool spread) {
  std::vector<Move> copied, own;  // what other ranks hold as well, and what they do not
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const bool cut = is_cut(tensors[t].content, layout.cut());
    for (const Held& held : cut ? kept_at(tensors[t], layout, position) : held_at(tensors[t], layout, position))
      if (held.copy(weight_axes).rank == 0) (cut ? own : copied).push_back({t, held.box, position});
  }
  const int copies = layout.size(copies_along), copy = layout.coordinate(position, copies_along);
  std::vector<Move> mine = spread ? part_of(copied, tensors, copy, copies) : copy == 0 ? copied : std::vector<Move>();
  mine.insert(mine.end(), own.begin(), own.end());
  std::stable_sort(mine.begin(), mine.end(), [](const Move& a, const Move& b) { return a.tensor < b.tensor; });
  return mine;
}

Index bytes_of(const std::vector<Move>& boxes, const std::vector<PlacedTensor>& tensors) {
  Index sum = 0;
  for (const Move& b : boxes) sum += elements(b.box.count) * size_of(tensors[b.tensor].dtype);
  return sum;
}

}  // namespace gyr
