// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon plan DECK, and gyrfalcon train DECK --dry-run.
#pragma once

#include "src/commands/deck_arguments.hpp"

namespace gyr {

struct PlanArguments : DeckArguments {
  int ranks = 0;                 // number of ranks; 0: those of this MPI job if it has several, else the fewest that the deck's grid needs
  std::string cluster, profile;  // files of the cluster description and of measured kernel times; no cluster: no prediction
  std::string page;              // file of the HTML page; empty: print text
  bool explain = false;          // true (--explain): search for the fastest layout
  double search_seconds = 40;    // time limit of that search (search_time.hpp); 0: none
  bool longest = false;          // true (--longest): find the longest sequences that fit in memory
  bool explain_layout = false;   // true (--explain-layout): show the sharding of each operator over tensor-parallel ranks
  double tokens = 0;             // tokens of the whole training run; 0: those of the deck's steps
};

// Prints memory, FLOPs and communication of every rank and, with a cluster description, the predicted step time.
// Returns the exit code.
int plan(const PlanArguments&);

}  // namespace gyr
