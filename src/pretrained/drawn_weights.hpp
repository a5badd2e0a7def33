// SPDX-License-Identifier: BSD-3-Clause
// A stored model in which some weights are replaced by newly initialised ones.
#pragma once

#include <memory>
#include <vector>

#include "src/checkpoint/weight_source.hpp"

namespace gyr {

// The stored weights without those in `left`, and the weights in `drawn`, initialised with this seed as in a run from
// scratch.
std::unique_ptr<WeightSource> replace_with_initialised(std::unique_ptr<WeightSource> stored, std::vector<Weight> left, std::vector<Weight> drawn,
                                                       std::uint64_t seed);

}  // namespace gyr
