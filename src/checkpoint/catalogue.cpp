// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/catalogue.hpp"

namespace gyr {

template <class T>
std::vector<PlacedWeight> model_weights(const ModelConfig& config, const Layout& layout, const Trained& trained) {
  std::vector<PlacedWeight> all;
  for (int s = 0; s < layout.size("pipeline"); ++s) {
    Grid ghost = Grid::ghost(layout, position_at(layout, s, 0));
    Stage<T> stage(config, ghost, trained);
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

std::vector<Stretch> given_stretches(const Weight& w, int ranks, int rank) {
  Parameter p;
  p.weight = w;
  p.share = deal(w, ranks, rank);
  std::vector<Stretch> list;
  stretches(p, [&](Index logical, Index local, Index count, const Piece& piece) {
    if (piece.replica == 0) list.push_back({logical, local, count});
  });
  return list;
}

std::vector<Stretch> inside(const std::vector<Stretch>& all, Index first, Index last) {
  std::vector<Stretch> list;
  for (const Stretch& s : all) {
    const Index from = std::max(first, s.logical), to = std::min(last, s.logical + s.count);
    if (from < to) list.push_back({from, s.local + from - s.logical, to - from});
  }
  return list;
}

Index total(const std::vector<Stretch>& list) {
  Index sum = 0;
  for (const Stretch& s : list) sum += s.count;
  return sum;
}

int position_at(const Layout& layout, int stage, int tensor) {
  for (int position = 0; position < layout.ranks(); ++position) {
    bool here = true;
    for (const LayoutAxis& axis : layout.axes) {
      const int wanted = axis.name == "pipeline" ? stage : axis.name == "tensor" ? tensor : 0;
      here = here && layout.coordinate(position, axis.name) == wanted;
    }
    if (here) return position;
  }
  fail(Exit::internal, "no rank stands at stage {}, tensor rank {}", stage, tensor);
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

}  // namespace gyr
