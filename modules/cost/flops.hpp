// SPDX-License-Identifier: BSD-3-Clause
// Parameters and floating-point operations of a model, in closed form from its shapes.
#pragma once

#include "modules/model/layer.hpp"

namespace gyr {

// Every weight of the whole model once, in its order.
std::vector<Weight> declared_weights(const ModelConfig&);
// Logical parameters of the whole model (padding not counted, tied matrices once).
Index parameter_count(const ModelConfig&);

// Forward flops per token of the text, what an encoder does for it among them, multiply-adds counting two.
//   minimal   attention over what its mask shows, half where it is causal, SSM as a plain recurrence (5 E N): what model flops utilisation counts
//   executed  attention over the same, SSM chunk by chunk as it is computed, convolutions
//   megatron  Megatron-LM r0.8's convention: attention over the full square, SSM as 7 E N, no convolution
// Adapters are products like others. Where attention has a window, for its part of the causal half, and twice that for the square.
struct TokenFlops {
  double minimal = 0, executed = 0, megatron = 0;
};
TokenFlops forward_flops(const ModelConfig&, const TextLengths&);

// A training step costs three forwards per token: one forward, two backward ...
inline constexpr double training_factor = 3;
// ... less what frozen weights save: the gradients of their matrices, and all of backward below the lowest weight that is trained. Minimal
// flops of a step per token.
double training_flops(const ModelConfig&, const TextLengths&, const Trained&);

// Forward flops per token of each layer (executed), of the embedding and of the head: the costs by which stages are cut.
struct StageCosts {
  std::vector<double> layers;
  double embedding = 0, head = 0;
};
StageCosts stage_costs(const ModelConfig&, const TextLengths&);

}  // namespace gyr
