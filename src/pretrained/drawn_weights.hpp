// SPDX-License-Identifier: BSD-3-Clause
// A model that exists with other weights beside some of its own, which are drawn as a run without a beginning draws them.
#pragma once

#include <memory>
#include <vector>

#include "src/checkpoint/weight_source.hpp"

namespace gyr {

// What is stored, without the weights in `left`, and the weights in `drawn` with this seed.
std::unique_ptr<WeightSource> drawn_beside(std::unique_ptr<WeightSource> stored, std::vector<Weight> left, std::vector<Weight> drawn,
                                           std::uint64_t seed);

}  // namespace gyr
