// SPDX-License-Identifier: BSD-3-Clause
// Parameter counts and floating-point operations of a model, in closed form from its shapes.
#pragma once

#include "modules/model/layer.hpp"

namespace gyr {

// Every weight of the unsharded model once, in the order of declaration.
std::vector<Weight> declared_weights(const ModelConfig&);
// Parameters of the unsharded model, without padding; a tied matrix counts once.
Index parameter_count(const ModelConfig&);

// ... that a token uses: of experts, those that its router chooses.
Index active_parameter_count(const ModelConfig&);

// ... of which training changes these: all but frozen weights.
Index trained_parameter_count(const ModelConfig&, const Trained&);

// Forward flops per token of the text, including the encoder's work for it; a multiply-add counts as two.
//   minimal   attention over visible keys, half of them if causal; SSM as a plain recurrence (5 E N). Model flops utilisation (MFU) is based on this
//   executed  the same attention; SSM chunk by chunk, as it is computed
//   megatron  convention of Megatron-LM r0.8: attention over the full square, SSM as 7 E N, no convolution
//   E inner channels and N state size of the SSM. minimal and executed include the convolution, and all include the GEMMs of LoRA adapters
// With a sliding window, the causal half counts only keys within the window, and the square is twice that.
struct TokenFlops {
  double minimal = 0, executed = 0, megatron = 0;
};
TokenFlops forward_flops(const ModelConfig&, const TextLengths&);

// A training step costs three forward passes per token, one for the forward and two for the backward ...
inline constexpr double training_factor = 3;
// ... less what frozen weights save: the gradients of their matrices, and the backward below the lowest trained weight.
// Returns the minimal flops of a training step per token.
double training_flops(const ModelConfig&, const TextLengths&, const Trained&);

// Forward flops per token of each layer (executed), of the embedding and of the head. Pipeline stages are balanced by
// these costs.
struct StageCosts {
  std::vector<double> layers;
  double embedding = 0, head = 0;
};
StageCosts stage_costs(const ModelConfig&, const TextLengths&);

}  // namespace gyr
