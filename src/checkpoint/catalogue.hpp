// SPDX-License-Identifier: BSD-3-Clause
// Which tensors a model's checkpoint holds, and which elements of each lie where on which rank: derived from the weights' declarations,
// so every rank knows it of all others without asking.
#pragma once

#include "modules/model_config.hpp"
#include "modules/parameter.hpp"
#include "src/checkpoint/manifest.hpp"
#include "src/parallel/moves.hpp"

namespace gyr {

// Every weight of a model once, in the order of the model.
std::vector<PlacedWeight> model_weights(const ModelConfig&, const Layout&, const Trained& = {});
// The same on one rank.
std::vector<PlacedWeight> model_weights(const ModelConfig&, const Trained& = {});

// A tensor of the state of a model as some stage has it.
struct PlacedTensor {
  PlacedWeight of;
  Content content;
  StoredTensor tensor;
};
PlacedTensor placed_tensor(const PlacedWeight&, Content, DType precision);
// Of a model in that precision: every weight and, where it is trained, its moments, and its master where it is stored narrower than it is
// updated.
std::vector<PlacedTensor> model_tensors(const ModelConfig&, DType precision, const Layout&, const Trained& = {});

// A box of a tensor that a rank gives to a checkpoint.
struct GivenBox {
  int from;            // position of the rank
  std::size_t tensor;  // number in the list of model_tensors
  Box box;
  Shape local;  // where its corner lies in the rank's share
};
// What the rank at `position` gives, in the order of tensors: over all ranks every element comes once, from its first holder along the
// tensor axis. Ranks that hold the same along the data axis share it evenly where `spread`, otherwise the first of them gives all.
std::vector<GivenBox> given_boxes(const std::vector<PlacedTensor>&, const Layout&, int position, bool spread);
Index bytes_of(const std::vector<GivenBox>&, const std::vector<PlacedTensor>&);

}  // namespace gyr
