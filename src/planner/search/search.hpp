// SPDX-License-Identifier: BSD-3-Clause
// The fastest layouts of a run on so many ranks of a cluster, of all that its rules and a device's memory allow.
//
// Best first: every layout waits in a line by a bound below its step's time, which is made tighter when its turn comes: of a shape
// (layout_bound.hpp), of a layout from the dry run of its parts, at last the prediction itself. When one comes with its prediction, nothing that
// waits is faster. Where layers swap (activation.policy), a shape waits once for each recomputation, of which none is always faster.
#pragma once

#include "src/planner/layouts/layout_space.hpp"
#include "src/planner/predict/prediction.hpp"

namespace gyr {

struct FoundLayout {
  LayoutChoice choice;
  Prediction prediction;
  Index bytes = 0;  // of the fullest rank, as its plan says
  Index host = 0;   // swapped, of the rank where these are most
};

struct SearchResult {
  std::vector<FoundLayout> best;  // fastest first; of equally fast ones in the order of their choices
  double layouts = 0;             // of the whole space
  Refusals by_rules, by_memory;
  double slower = 0;        // bounded out: those not known to be too large, but slower than the best
  double least_slower = 0;  // seconds, at least, of the fastest of them
  Index predicted = 0;      // of the others
  Islands islands;          // that the ranks are on, where there are several (cluster.emulate)
  std::size_t dry_runs = 0;
  double seconds = 0;  // that the search took
};

enum class Pruning { bounds, none };  // none: predicts every layout

// What may wait at once: half a GiB.
inline constexpr std::size_t most_waiting = 5'000'000;

// On the islands of the cluster, where the deck names none. Exit::config where the cluster has fewer devices, and where more layouts wait than
// `most`.
SearchResult search(const RunConfig&, int ranks, const Cluster&, const Profile* = nullptr, int best = 10, Pruning = Pruning::bounds,
                    std::size_t most = most_waiting);

}  // namespace gyr
