// SPDX-License-Identifier: BSD-3-Clause
// The order of the layers in a hybrid model of Mamba-2, attention and MLP layers, from their shares.
#pragma once

#include <string>

#include "kernels/base/tensor.hpp"

namespace gyr {

// A symbol per layer (layer.hpp): round(layers * attention_ratio) times '*', round(layers * mlp_ratio) times '-', and 'M' for the others; halves
// round to even. '*' are evenly apart among all layers, then '-' among those that are left. It is the allocation of Mamba-2-Hybrid (Waleffe et al.
// 2024, arXiv 2406.07887) as Megatron-LM has it. `layers` > 0, ratios in [0, 1]. Exit::config where '*' and '-' together exceed the layers.
std::string hybrid_pattern(Index layers, double attention_ratio, double mlp_ratio);

}  // namespace gyr
