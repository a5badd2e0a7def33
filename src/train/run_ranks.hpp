// SPDX-License-Identifier: BSD-3-Clause
// The ranks of a run: those that train, and those that only generate (rl.generate.separate).
#pragma once

#include <functional>

#include "src/config/run_config.hpp"
#include "src/train/generation_orders.hpp"
#include "src/watch/watch.hpp"

namespace gyr {

// Ranks of a run in order: all, and those that train. `orders`: to the others; null if there are none.
struct RunRanks {
  MPI_Comm all, training;
  Identity me;  // among all ranks
  WaitPolicy patience;
  GenerationOrders* orders = nullptr;
};

// Calls `train` on the ranks that train; meanwhile the others carry out their orders. Collective over `world`. `attempt`: number of this
// start of the run. Exit::config if the ranks cannot be divided as the deck says.
void on_run_ranks(const RunConfig&, int attempt, MPI_Comm world, const std::function<void(const RunRanks&, Watch&)>& train);

}  // namespace gyr
