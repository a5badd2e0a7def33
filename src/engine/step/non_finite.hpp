// SPDX-License-Identifier: BSD-3-Clause
// Finds the weight where a non-finite value was first seen.
#pragma once

#include "modules/model/model_config.hpp"
#include "src/engine/step/optimizer.hpp"

namespace gyr {

// Throws Exit::numeric on every rank, with step, loss, norm and the weight nearest to the origin of the bad value. A
// non-finite weight is named first. Otherwise the last weight of the model with a non-finite gradient is named, because
// the backward spreads bad values towards the embedding. Collective over the grid.
[[noreturn]] void throw_non_finite(Device&, Grid&, const ModelConfig&, const Parameters&, const Optimizer&, std::int64_t step, double loss,
                                   double norm);

}  // namespace gyr
