// SPDX-License-Identifier: BSD-3-Clause
// Supervises a run from outside, without MPI: starts it, monitors it, reports what failed on which rank, and restarts
// it from the newest complete checkpoint until it is done or a restart is pointless.
#pragma once

#include <filesystem>

#include "src/supervisor/launcher.hpp"
#include "src/supervisor/supervise_settings.hpp"

namespace gyr {

// Properties of the run's deck that the supervisor needs.
struct SupervisedRun {
  std::string output;
  SuperviseSettings limits;
  double lock_patience = 0, walltime = 0;  // in seconds: wait for a locked folder (output.lock_seconds); time limit of the run, 0: none
  int model_ranks = 1;
  int data_grain = 1;          // the data-parallel size must be a multiple of this number, so that experts can be sharded
  bool permuted = false;       // true: the deck assigns every rank its position, so the data-parallel size cannot shrink
  std::vector<Index> batches;  // all global batch sizes of the run (batch size ramp), in sequences
  Index micro_batch_size = 1;
  Index begin = 0;  // step that a new run starts at: that of the checkpoint if it branches off (train.branch)
};

struct SuperviseOptions {
  std::string program, deck;
  Words overrides;
  std::string launcher;
  int ranks = 1;
  bool accept_changes = false;  // true: pass --accept-changes to train
  int spares = -1;              // lost ranks that can be replaced, -1: any number; after that the data axis shrinks
  bool take_over = false;       // true: take the output folder from a run on another machine
};

// Returns the exit code of the last attempt. Exit::device if the launcher cannot be started, Exit::io if another run
// holds the folder.
int supervise(const SupervisedRun&, const SuperviseOptions&);

// Largest data axis of at most `most` that divides every batch of the run; 0 if there is none.
int data_axis_of(const SupervisedRun&, int most);

}  // namespace gyr
