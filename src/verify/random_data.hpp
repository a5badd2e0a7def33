// SPDX-License-Identifier: BSD-3-Clause
// Random weights and samples that depend only on names and indices, so that they are the same on every layout.
#pragma once

#include "src/config/run_config.hpp"
#include "src/data/dataset.hpp"
#include "src/engine/step/engine.hpp"

namespace gyr {

// Matrices preserve the norm of their input. Norm weights are not all one and biases not all zero as in a new model,
// because that would hide errors.
void set_random_weights(Engine&);

// Sample `number` for this run: random tokens, with a different fraction of target tokens (not masked from the loss)
// per sample. Depending on the deck also separate documents, padding at the end, classes, preference pairs or an
// encoder input.
Sample random_sample(const RunConfig&, Index number);

}  // namespace gyr
