// SPDX-License-Identifier: BSD-3-Clause
// Looks after a run from outside, without MPI: starts it, watches it, says what went wrong and on which rank, and starts it again from
// the newest whole checkpoint until it is done or there is no sense in going on.
#pragma once

#include <filesystem>

#include "src/supervisor/launcher.hpp"
#include "src/supervisor/supervise_settings.hpp"

namespace gyr {

// What a supervisor needs to know of the run's deck.
struct SupervisedRun {
  std::string output;
  SuperviseSettings limits;
  double lock_patience = 0, walltime = 0;  // seconds; walltime 0: without end
  int model_ranks = 1;
  int data_grain = 1;          // the data axis is a multiple of it
  bool permuted = false;       // the deck gives every rank its place: the data axis cannot shrink
  std::vector<Index> batches;  // sequences of a step, all that the run has
  Index micro_batch_size = 1;
};

struct SuperviseOptions {
  std::string program, deck;
  Words overrides;
  std::string launcher;
  int ranks = 1;
  bool accept_changes = false;  // as of train
  int spares = -1;              // ranks that can be lost and replaced, -1: any number; beyond that the data axis shrinks
  bool take_over = false;       // the output folder, from a run on another machine
};

// Returns the exit code of the last attempt. Exit::usage where the launcher cannot be started, Exit::io where another run has the folder.
int supervise(const SupervisedRun&, const SuperviseOptions&);

// The largest data axis up to so many ranks on which every batch of the run splits; 0: there is none.
int data_axis_of(const SupervisedRun&, int most);

// Seconds of steps that are part of the result, each counted once, by the lines of a metrics.jsonl written since `begin` (seconds since
// 1970).
double useful_seconds(const std::filesystem::path& metrics, double begin);

}  // namespace gyr
