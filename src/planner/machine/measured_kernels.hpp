// SPDX-License-Identifier: BSD-3-Clause
// Measures the time of every kernel of a deck by shape, during real training steps, so that caches, neighbouring
// kernels and threads behave as in a run.
#pragma once

#include <mpi.h>

#include "src/engine/step/engine.hpp"
#include "src/planner/machine/profile.hpp"

namespace gyr {

// The same model with every layer type of the deck repeated until each type occurs twice and every stage has a layer.
// With a single layer, its weights and gradients would stay in cache from one micro-batch to the next.
ModelConfig with_each_layer_twice(ModelConfig, int stages);

// Micro-batch of random tokens and labels.
MicroBatch random_batch(const EngineConfig&, unsigned seed);

// Runs a few training steps of this layout on all ranks of `world`. Returns the mean seconds per launch of each kernel
// shape over all ranks that launch it; all ranks get the same result. Collective.
Profile measured_kernels(const EngineConfig&, const Layout&, MPI_Comm world);

}  // namespace gyr
