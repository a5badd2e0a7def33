// SPDX-License-Identifier: BSD-3-Clause
// Weights and samples that are functions of names and numbers: the same on every layout, and none of them special.
#pragma once

#include "src/config/run_config.hpp"
#include "src/data/dataset.hpp"
#include "src/engine/step/engine.hpp"

namespace gyr {

// Matrices keep the length of what they multiply; norms are not all one nor biases all zero, as in a new model, where a mistake would hide.
void set_random_weights(Engine&);

// Sample `number` of a run's kind: random tokens, some of which are only read, in samples of unequal numbers of labels; where the deck's are so,
// documents that do not see each other, or padding behind the last.
Sample random_sample(const RunConfig&, Index number);

}  // namespace gyr
