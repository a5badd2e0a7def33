// SPDX-License-Identifier: BSD-3-Clause
// Order of the layers in a hybrid model of Mamba-2, attention and MLP layers, from their ratios.
#pragma once

#include <string>

#include "kernels/base/tensor.hpp"

namespace gyr {

// One symbol per layer (layer.hpp): round(layers * attention_ratio) times '*', round(layers * mlp_ratio) times '-', and
// 'M' for the others; halves round to even. The '*' are spread evenly over all layers, then the '-' over the remaining
// ones. This is the allocation of Mamba-2-Hybrid (Waleffe et al. 2024, arXiv 2406.07887) as in Megatron-LM. `layers` >
// 0, ratios in [0, 1]. Exit::config if '*' and '-' together exceed the layers.
std::string hybrid_pattern(Index layers, double attention_ratio, double mlp_ratio);

}  // namespace gyr
