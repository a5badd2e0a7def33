// SPDX-License-Identifier: BSD-3-Clause
// Times every kernel of a deck by shape, where it stands in a step: caches, neighbours and threads are as they are there.
#pragma once

#include <mpi.h>

#include "src/engine/step/engine.hpp"
#include "src/planner/machine/profile.hpp"

namespace gyr {

// The same model with two layers of each type, in the deck's order, and as many more as stages need: weights and gradients of one alone would stay
// in caches from one micro-batch to the next.
ModelConfig with_each_layer_twice(ModelConfig, int stages);

// Random tokens and labels of a micro-batch.
MicroBatch random_batch(const EngineConfig&, unsigned seed);

// A few steps of this layout on all ranks of `world`, and what the launches of each shape have taken in the mean, of all ranks that have any: the
// same on every rank. Collective.
Profile measured_kernels(const EngineConfig&, const Layout&, MPI_Comm world);

}  // namespace gyr
