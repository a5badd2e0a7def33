// SPDX-License-Identifier: BSD-3-Clause
// Where a number that is not finite was first seen.
#pragma once

#include "modules/model/model_config.hpp"
#include "src/engine/step/optimizer.hpp"

namespace gyr {

// Throws Exit::numeric on every rank, with step, loss, norm and the weight nearest to where the bad number began: backward spreads it towards
// the embedding, so the last weight in the order of the model whose gradient is bad is the closest to its origin; weights that are bad
// themselves come first. Collective over the grid.
[[noreturn]] void throw_non_finite(Device&, Grid&, const ModelConfig&, const Parameters&, const Optimizer&, std::int64_t step, double loss,
                                   double norm);

}  // namespace gyr
