// SPDX-License-Identifier: BSD-3-Clause
// A training run: sets up model, data and optimizer, runs the steps, logs, validates and saves.
#pragma once

#include <mpi.h>

#include "src/config/run_config.hpp"
#include "src/train/train_options.hpp"

namespace gyr {

// Collective over `world`. Returns when all steps are done and saved. Exit::again if it was stopped before
// (StopSignals, the file STOP, train.walltime), with everything saved.
void train(const RunConfig&, const std::string& effective_deck, const TrainOptions&, MPI_Comm world);

}  // namespace gyr
