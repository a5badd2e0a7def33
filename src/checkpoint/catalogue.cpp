// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/catalogue.hpp"

#include <algorithm>

#include "src/checkpoint/cut.hpp"
#include "src/engine/stage.hpp"

namespace gyr {

namespace {

// Ranks that differ along these axes alone hold the same weights.
constexpr Axes copies_along = all_but(weight_axes + Axis::pipeline);

}  // namespace

std::vector<PlacedTensor> model_weights(const ModelConfig& config, DType precision, const Layout& layout, const Trained& trained) {
  std::vector<PlacedTensor> all;
  for (int s = 0; s < layout.size(Axis::pipeline); ++s) {
    Grid dry = Grid::dry_run(layout, layout.position_at([&](Axis axis) { return axis == Axis::pipeline ? s : 0; }));
    Stage stage(config, precision, dry, trained);
    for (const auto& p : stage.parameters().all())
      if (!p->tied) all.push_back({p->weight, s, p->trained, p->cut(), Content::weight, p->dtype()});
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
