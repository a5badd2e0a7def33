// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/catalogue.hpp"

#include "src/checkpoint/cut.hpp"

namespace gyr {

namespace {

// Ranks that differ along these axes alone hold the same weights.
constexpr Axes copies_along = all_but({Axis::pipeline, Axis::tensor});

}  // namespace

template <class T>
std::vector<PlacedWeight> model_weights(const ModelConfig& config, const Layout& layout, const Trained& trained) {
  std::vector<PlacedWeight> all;
  for (int s = 0; s < layout.size(Axis::pipeline); ++s) {
    Grid dry = Grid::dry_run(layout, layout.position_at([&](Axis axis) { return axis == Axis::pipeline ? s : 0; }));
    Stage<T> stage(config, dry, trained);
    for (const auto& p : stage.parameters().all())
      if (!p->tied) all.push_back({p->weight, s, p->trained});
  }
  return all;
}

template <class T>
std::vector<PlacedWeight> model_weights(const ModelConfig& config, const Trained& trained) {
  return model_weights<T>(config, grid_layout(1, 1, 1, {{0, config.layers()}}), trained);
}

template <class T>
std::vector<StoredTensor> stored_tensors(const PlacedWeight& placed) {
  const Weight& w = placed.weight;
  constexpr DType wide = dtype_of<Acc<T>>();
  const bool narrow = dtype_of<T>() != wide && w.storage == Storage::narrow;
  std::vector<StoredTensor> tensors{{Content::weight, w.name, narrow ? dtype_of<T>() : wide, w.shape}};
  if (!placed.trained) return tensors;
  tensors.push_back({Content::first_moment, w.name, wide, w.shape});
  tensors.push_back({Content::second_moment, w.name, wide, w.shape});
  if (narrow) tensors.push_back({Content::master, w.name, wide, w.shape});
  return tensors;
}

template <class T>
std::vector<PlacedTensor> model_tensors(const ModelConfig& config, const Layout& layout, const Trained& trained) {
  std::vector<PlacedTensor> all;
  for (const PlacedWeight& placed : model_weights<T>(config, layout, trained))
    for (const StoredTensor& t : stored_tensors<T>(placed)) all.push_back({t, placed.weight, placed.stage});
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
  const int stage = layout.coordinate(position, Axis::pipeline), ranks = layout.size(Axis::tensor), rank = layout.coordinate(position, Axis::tensor);
  std::vector<GivenBox> boxes;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    if (tensors[t].stage != stage) continue;
    const Weight& w = tensors[t].weight;
    const int dim = w.sharding.dim;
    for (const Piece& piece : shard(w, ranks, rank).pieces) {
      if (piece.replica != 0 || piece.extent == 0) continue;
      GivenBox& b = boxes.emplace_back(GivenBox{t, whole(w.shape), Shape(w.shape.size(), 0)});
      b.box.first[dim] = piece.global, b.box.count[dim] = piece.extent, b.local[dim] = piece.local;
    }
  }
  const int copies = layout.size(copies_along), copy = layout.coordinate(position, copies_along);
  if (spread) return part_of(boxes, tensors, copy, copies);
  return copy == 0 ? boxes : std::vector<GivenBox>();
}

Index bytes_of(const std::vector<GivenBox>& boxes, const std::vector<PlacedTensor>& tensors) {
  Index sum = 0;
  for (const GivenBox& b : boxes) sum += elements(b.box.count) * size_of(tensors[b.tensor].tensor.dtype);
  return sum;
}

template std::vector<PlacedWeight> model_weights<double>(const ModelConfig&, const Layout&, const Trained&);
template std::vector<PlacedWeight> model_weights<float>(const ModelConfig&, const Layout&, const Trained&);
template std::vector<PlacedWeight> model_weights<bf16>(const ModelConfig&, const Layout&, const Trained&);
template std::vector<PlacedWeight> model_weights<double>(const ModelConfig&, const Trained&);
template std::vector<PlacedWeight> model_weights<float>(const ModelConfig&, const Trained&);
template std::vector<PlacedWeight> model_weights<bf16>(const ModelConfig&, const Trained&);
template std::vector<StoredTensor> stored_tensors<double>(const PlacedWeight&);
template std::vector<StoredTensor> stored_tensors<float>(const PlacedWeight&);
template std::vector<StoredTensor> stored_tensors<bf16>(const PlacedWeight&);
template std::vector<PlacedTensor> model_tensors<double>(const ModelConfig&, const Layout&, const Trained&);
template std::vector<PlacedTensor> model_tensors<float>(const ModelConfig&, const Layout&, const Trained&);
template std::vector<PlacedTensor> model_tensors<bf16>(const ModelConfig&, const Layout&, const Trained&);

}  // namespace gyr
