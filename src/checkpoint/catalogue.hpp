// SPDX-License-Identifier: BSD-3-Clause
// Which tensors a model's checkpoint holds, and which elements of each lie where on which rank: derived from the weights' declarations,
// so every rank knows it of all others without asking.
#pragma once

#include "src/checkpoint/header.hpp"
#include "src/layout.hpp"
#include "src/stage.hpp"

namespace gyr {

struct PlacedWeight {
  Weight weight;
  int stage;  // coordinate on the pipeline axis
  bool trained = true;
};

// Every weight of a model once, in the order of the model.
template <class T>
std::vector<PlacedWeight> model_weights(const ModelConfig&, const Layout&, const Trained& = {});
// The same where nobody cares for stages.
template <class T>
std::vector<PlacedWeight> model_weights(const ModelConfig&, const Trained& = {});

// A weight's tensors: itself and, where it is trained, its moments, and its master where it is stored narrower than it is updated.
template <class T>
std::vector<StoredTensor> stored_tensors(const PlacedWeight&);

// Logical elements [logical, logical + count) lie at `local` in a rank's share.
struct Stretch {
  Index logical, local, count;
};
// Those that rank `rank` of `ranks` tensor ranks gives to a checkpoint, by local place: each element comes from its first holder.
std::vector<Stretch> given_stretches(const Weight&, int ranks, int rank);
// The part of each stretch inside logical elements [first, last).
std::vector<Stretch> inside(const std::vector<Stretch>&, Index first, Index last);
Index total(const std::vector<Stretch>&);

// The position in the grid with these coordinates, all others being 0.
int position_at(const Layout&, int stage, int tensor);

}  // namespace gyr
