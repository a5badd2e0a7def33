// SPDX-License-Identifier: BSD-3-Clause
// Stored weights of a model with ternary linear layers (model.linear), as the layers compute with them.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "modules/model/model_config.hpp"
#include "src/checkpoint/weight_source.hpp"

namespace gyr {

// Names of the weights that the layers quantize; none if the layers are not ternary.
std::set<std::string> weights_of_ternary_layers(const ModelConfig&);

// The weights of `stored`. Those of ternary layers are read as W^, in float: each value is -1, 0 or 1 times the mean magnitude of its
// section (modules/weights/ternary_sections.hpp). A weight is read twice, because a scale depends on the whole section.
std::unique_ptr<WeightSource> ternary_weights(std::unique_ptr<WeightSource> stored, const ModelConfig&);

}  // namespace gyr
