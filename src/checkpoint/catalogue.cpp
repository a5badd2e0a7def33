// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/catalogue.hpp"

#include "src/checkpoint/cut.hpp"
#include "src/engine/stage.hpp"

namespace gyr {

namespace {

// Ranks that differ along these axes alone hold the same weights.
constexpr Axes copies_along = all_but(weight_axes + Axis::pipeline);

}  // namespace

std::vector<PlacedWeight> model_weights(const ModelConfig& config, const Layout& layout, const Trained& trained) {
  std::vector<PlacedWeight> all;
  for (int s = 0; s < layout.size(Axis::pipeline); ++s) {
    Grid dry = Grid::dry_run(layout, layout.position_at([&](Axis axis) { return axis == Axis::pipeline ? s : 0; }));
    Stage stage(config, DType::f32, dry, trained);
    for (const auto& p : stage.parameters().all())
      if (!p->tied) all.push_back({p->weight, s, p->trained});
  }
  return all;
}

std::vector<PlacedWeight> model_weights(const ModelConfig& config, const Trained& trained) {
  return model_weights(config, grid_layout(1, 1, 1, {{0, config.layers()}}), trained);
}

PlacedTensor placed_tensor(const PlacedWeight& placed, Content content, DType precision) {
  const Weight& w = placed.weight;
  const bool as_stored = content == Content::weight && w.storage == Storage::narrow;
  return {placed, content, stored_tensor(content, w.name, as_stored ? precision : accumulator_of(precision), w.shape)};
}

std::vector<PlacedTensor> model_tensors(const ModelConfig& config, DType precision, const Layout& layout, const Trained& trained) {
  std::vector<PlacedTensor> all;
  for (const PlacedWeight& placed : model_weights(config, layout, trained)) {
    const PlacedTensor& value = all.emplace_back(placed_tensor(placed, Content::weight, precision));
    const bool narrow = value.tensor.dtype != accumulator_of(precision);
    if (!placed.trained) continue;
    all.push_back(placed_tensor(placed, Content::first_moment, precision));
    all.push_back(placed_tensor(placed, Content::second_moment, precision));
    if (narrow) all.push_back(placed_tensor(placed, Content::master, precision));
  }
  return all;
}

namespace {

Index row_bytes(const GivenBox& b, const PlacedTensor& t) { return elements(b.box.count) / b.box.count[0] * size_of(t.tensor.dtype); }

// The boxes of one of `parts` equal parts.
std::vector<GivenBox> part_of(const std::vector<GivenBox>& boxes, const std::vector<PlacedTensor>& tensors, Index part, Index parts) {
  const Cut cut{bytes_of(boxes, tensors), parts};
  std::vector<GivenBox> mine;
  Index offset = 0;
  for (const GivenBox& b : boxes) {
    const Index bytes = row_bytes(b, tensors[b.tensor]);
    const auto [first, last] = cut.rows_in(part, offset, bytes, b.box.count[0]);
    offset += bytes * b.box.count[0];
    if (first == last) continue;
    GivenBox& m = mine.emplace_back(b);
    m.box.first[0] += first, m.local[0] += first, m.box.count[0] = last - first;
  }
  return mine;
}

}  // namespace

std::vector<GivenBox> given_boxes(const std::vector<PlacedTensor>& tensors, const Layout& layout, int position, bool spread) {
  std::vector<GivenBox> boxes;
  for (std::size_t t = 0; t < tensors.size(); ++t)
    for (const Held& held : held_at(tensors[t].of, layout, position))
      if (held.copy(weight_axes).rank == 0) boxes.push_back({position, t, held.box, held.local});
  const int copies = layout.size(copies_along), copy = layout.coordinate(position, copies_along);
  if (spread) return part_of(boxes, tensors, copy, copies);
  return copy == 0 ? boxes : std::vector<GivenBox>();
}

Index bytes_of(const std::vector<GivenBox>& boxes, const std::vector<PlacedTensor>& tensors) {
  Index sum = 0;
  for (const GivenBox& b : boxes) sum += elements(b.box.count) * size_of(tensors[b.tensor].tensor.dtype);
  return sum;
}

}  // namespace gyr
