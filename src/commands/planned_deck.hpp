// SPDX-License-Identifier: BSD-3-Clause
// Deck of a run after its automatic choices: the layout found by a search (parallel.plan: auto), and the fraction of
// activations that is offloaded (activation.alpha: auto).
#pragma once

#include <optional>

#include "src/commands/cluster_report.hpp"
#include "src/commands/deck_arguments.hpp"
#include "src/train/train_options.hpp"

namespace gyr {

// unless_resumed: skip the search and keep the layout and alpha of the newest checkpoint in the run's folder, if it has
// the same number of ranks.
enum class Replan { always, unless_resumed };

struct PlannedDeck {
  RunConfig run;
  std::string effective;                // deck with every key and the value in use, including the choices, and parallel.plan: deck
  std::string notes;                    // log text about the choices; on rank 0 only
  std::optional<Expectation> expected;  // predicted step time and memory, if a search chose the layout
};

// Like read_deck, for a run on `ranks` ranks. `machine`: null to use the cluster that the deck names. Rank 0 decides
// for all ranks. Collective.
PlannedDeck read_planned_deck(const DeckArguments&, const Runtime&, int ranks, Replan = Replan::always, const Machine* machine = nullptr);

// Predicted seconds of the calls of an iteration of policy training on the machine of parallel.cluster and parallel.profile, on rank 0 only;
// empty without them. A machine that cannot be predicted is no reason to refuse a run: a note is printed.
std::optional<CallSeconds> predicted_calls(const RunConfig&, const Runtime&);

// Lines about settings that are valid but probably mistakes, which `train` and `plan` print first.
std::vector<std::string> remarks_on(const RunConfig&);

// Machine described by these files. If they are empty and the deck has an automatic choice, parallel.cluster and
// parallel.profile are used. Empty if no file is named.
std::optional<Machine> machine_of(const RunConfig&, const std::string& cluster, const std::string& profile);

}  // namespace gyr
