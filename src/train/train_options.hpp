// SPDX-License-Identifier: BSD-3-Clause
// How a run is started, besides its deck.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "src/job/run_folder.hpp"

namespace gyr {

// What a search has predicted of a run: of a step, and of the rank that takes most memory.
struct Expectation {
  double seconds = 0;
  Index bytes = 0;
};

struct TrainOptions {
  bool resume = false;                    // from the newest whole checkpoint of the output folder's run, where there is one
  bool anew = false;                      // what a run has left in the output folder is set aside
  bool accept_changes = false;            // of the deck, that make the model compute something else than what was saved
  bool take_over = false;                 // the output folder, though a run on another machine may still write to it
  int attempt = 0;                        // which start of the run this is
  std::string supervisor{};               // token of the supervisor's lock, where one has started the run
  RunFolder* folder = nullptr;            // that the first rank takes; without one the trainer has its own
  std::optional<Expectation> expected{};  // told beside what is measured
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();  // of the job's time
};

}  // namespace gyr
