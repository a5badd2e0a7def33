// SPDX-License-Identifier: BSD-3-Clause
// Layers R added to a stored model that has none (retro-fitting; Borgeaud et al., "Improving language models by retrieving from
// trillions of tokens", 2022, section 4.2). The other layers are read under their numbers in the stored model. Those of R are
// initialised as in a run from scratch, with an o_proj of 0, so that the model begins with the function of the stored one.
#pragma once

#include <memory>

#include "src/checkpoint/weight_source.hpp"

namespace gyr {

// True if `model` has layers R and `stored` has none.
bool adds_retrieval(const ModelConfig& stored, const ModelConfig& model);
// The model without its layers R. Exit::config if its other layers are not those of `stored`, or if an added layer would change its
// function. `name`: name of the stored model, for messages.
ModelConfig without_retrieval(const std::string& name, const ModelConfig& stored, const ModelConfig& model);
// The weights of `model`: those of the model without R from `stored`, and those of R initialised with this seed.
std::unique_ptr<WeightSource> add_retrieval(std::unique_ptr<WeightSource> stored, const ModelConfig& model, std::uint64_t seed);
// One line that lists the weights that are read and initialised.
std::string describe_added_retrieval(const ModelConfig& model);

}  // namespace gyr
