// SPDX-License-Identifier: BSD-3-Clause
// The deck of a run whose layout it may leave to a search (parallel.plan: auto), and the share of what is swapped (activation.alpha: auto).
#pragma once

#include <optional>

#include "src/commands/cluster_report.hpp"
#include "src/commands/deck_arguments.hpp"
#include "src/train/train_options.hpp"

namespace gyr {

// Whether a search may be spared: by the layout and the share of the newest checkpoint of the run's folder, if it is of as many ranks.
enum class Replan { always, unless_resumed };

struct PlannedDeck {
  RunConfig run;
  std::string effective;                // as it is understood, with what was found, and parallel.plan: deck
  std::string notes;                    // what was decided, for people; on the first rank
  std::optional<Expectation> expected;  // what was predicted of it
};

// As read_deck, on so many ranks. `machine`: null where the deck names it. The first rank decides for all. Collective.
PlannedDeck read_planned_deck(const DeckArguments&, const Runtime&, int ranks, Replan = Replan::always, const Machine* machine = nullptr);

// What is known of the machine: by these files, or where there are none and something is to be found by parallel.cluster and parallel.profile.
std::optional<Machine> machine_of(const RunConfig&, const std::string& cluster, const std::string& profile);

}  // namespace gyr
