// SPDX-License-Identifier: BSD-3-Clause
// Which tensors a model's checkpoint holds, and which elements of each lie where on which rank: derived from the weights' declarations,
// so every rank knows it of all others without asking.
#pragma once

#include "modules/model/model_config.hpp"
#include "modules/weights/parameter.hpp"
#include "src/checkpoint/manifest.hpp"
#include "src/parallel/moves.hpp"

namespace gyr {

// Every weight of a model in that precision once, in the order of the model.
std::vector<PlacedTensor> model_weights(const ModelConfig&, DType precision, const Layout&, const Trained& = {});
// The same on one rank.
std::vector<PlacedTensor> model_weights(const ModelConfig&, const Trained& = {});

// What there is of a weight besides.
PlacedTensor beside(const PlacedTensor& weight, Content, DType precision);
// As readers know it.
StoredTensor stored_tensor(const PlacedTensor&);
// Of a model in that precision: every weight and, where it is trained, its moments, and its master where it is stored narrower than it is
// updated.
std::vector<PlacedTensor> model_tensors(const ModelConfig&, DType precision, const Layout&, const Trained& = {});

// What the rank at `position` gives to a checkpoint, in the order of tensors, ranks named by their positions: over all ranks every element comes
// once, from its first holder along the tensor axis. Of what ranks along the data axis have cut among themselves each gives its part; what they all
// hold they share evenly where `spread`, otherwise the first of them gives all.
std::vector<Move> contributed_boxes(const std::vector<PlacedTensor>&, const Layout&, int position, bool spread);
Index bytes_of(const std::vector<Move>&, const std::vector<PlacedTensor>&);

}  // namespace gyr
