// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon plan DECK, and gyrfalcon train DECK --dry-run.
#pragma once

#include "src/commands/deck_arguments.hpp"

namespace gyr {

struct PlanArguments : DeckArguments {
  int ranks = 0;                 // 0: as many as the deck's grid has
  std::string cluster, profile;  // files; none: nothing is predicted
  std::string page;              // file; none: text
  bool explain = false;          // searches for a layout
  bool longest = false;          // sequences
  bool explain_layout = false;   // of tensors, layer by layer
  double tokens = 0;             // of the whole training; 0: what the deck's steps have
};

// Prints memory, flops and traffic of every rank, and on a cluster how long a step takes. An exit code.
int plan(const PlanArguments&);

}  // namespace gyr
