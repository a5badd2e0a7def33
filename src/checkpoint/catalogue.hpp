// SPDX-License-Identifier: BSD-3-Clause
// List of the tensors in a model's checkpoint, and which rank holds which box of each. It follows from the weight
// declarations, so every rank computes it for all ranks without communication.
#pragma once

#include "modules/model/model_config.hpp"
#include "modules/weights/parameter.hpp"
#include "src/checkpoint/manifest.hpp"
#include "src/engine/config/optimizer_config.hpp"
#include "src/parallel/moves.hpp"

namespace gyr {

// Every weight of the model once, in the order of the model. `precision`: type of the model's weights.
std::vector<PlacedTensor> model_weights(const ModelConfig&, DType precision, const Layout&, const Trained& = {});
// The same for a float32 model on one rank.
std::vector<PlacedTensor> model_weights(const ModelConfig&, const Trained& = {});

// Storage of a model's weights, for moves between models (mover.hpp). `masters`: trained weights have master weights, if
// they are stored in a lower precision.
struct WeightStorage {
  DType precision = DType::f32;
  Trained trained = {};
  bool masters = false;
  Factors factors = Factors::stored;
};
PlacedWeights placed_weights(const ModelConfig&, const WeightStorage&, const Layout&, Mesh);

// The optimizer tensor (`Content`: a state or the master weight) that belongs to a weight.
PlacedTensor like_weight(const PlacedTensor& weight, Content, DType precision);
// Manifest entry of a tensor.
StoredTensor stored_tensor(const PlacedTensor&);
// All tensors of a checkpoint: every weight, the states of trained weights, and a master weight if a trained weight is
// stored in a lower precision.
std::vector<PlacedTensor> model_tensors(const ModelConfig&, DType precision, const Layout&, const OptimizerConfig& = {});

// Boxes that the rank at `position` contributes to a checkpoint, in tensor order; Move::from is a position. Over all
// ranks every element occurs once, from its first holder on the tensor-parallel axis. Of ZeRO-sharded tensors each
// data-parallel rank contributes its shard. Replicated tensors are divided evenly among the replicas if `spread`;
// otherwise the first replica contributes all of them.
std::vector<Move> contributed_boxes(const std::vector<PlacedTensor>&, const Layout&, int position, bool spread);
Index bytes_of(const std::vector<Move>&, const std::vector<PlacedTensor>&);

}  // namespace gyr
