// SPDX-License-Identifier: BSD-3-Clause
// Options for the start of a run, besides its deck.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "src/job/run_folder.hpp"
#include "src/train/call_times.hpp"

namespace gyr {

// Prediction of a layout search: seconds per step, and device memory of the rank that needs most.
struct Expectation {
  double seconds = 0;
  Index bytes = 0;
};

struct TrainOptions {
  bool resume = false;                    // continue from the newest intact checkpoint of the run in the output folder, if there is one
  bool start_over = false;                // set files of an earlier run in the output folder aside
  bool accept_changes = false;            // accept deck changes that make the model compute something else than the saved one
  bool take_over = false;                 // take the output folder even if a run on another machine may still write to it
  int attempt = 0;                        // number of this attempt (start of the run), from 0
  std::string supervisor{};               // token of the supervisor's lock, if a supervisor has started the run
  RunFolder* folder = nullptr;            // folder object that the first rank locks; null: the trainer uses its own
  std::optional<Expectation> expected{};  // prediction that is logged next to the measured values
  std::optional<CallSeconds> calls{};     // the same for the calls of an iteration of policy training; on the first rank only
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();  // start of the job's walltime
};

}  // namespace gyr
