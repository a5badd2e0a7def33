// SPDX-License-Identifier: BSD-3-Clause
// Search for the fastest layouts of a run on a given number of ranks of a cluster, among all layouts that its rules and the memory allow.
//
// Best-first branch and bound: every candidate layout is in a priority queue, ordered by a lower bound of its step time. When a candidate is taken
// from the queue, its bound is tightened: first the bound of its shape (layout_bound.hpp), then that of the layout from the dry run of its parts,
// and finally the prediction itself. When a candidate with a prediction is at the front, no candidate in the queue is faster. With offload
// (activation.policy), a shape is queued once for each recomputation setting, because none of them is always the fastest.
//
// A search that takes longer than a third of its time limit descends once, from layouts of many sizes, to better neighbours, so that it knows good
// layouts when it is ended. It ends with the candidates of the tightest bounds. The smallest bound in the queue then
// limits how much faster a layout can be that was not predicted.
#pragma once

#include <functional>
#include <limits>
#include <optional>

#include "src/planner/layouts/layout_space.hpp"
#include "src/planner/predict/prediction.hpp"

namespace gyr {

struct FoundLayout {
  LayoutChoice choice;
  Prediction prediction;
  Index bytes = 0;  // memory of the rank with the most, as in its memory plan
  Index host = 0;   // offloaded bytes of the rank that offloads most
};

// The layout of the deck itself on these ranks.
struct OwnLayout {
  LayoutChoice choice;
  std::string refused;                // why it cannot run: a rule of the deck, or memory; empty if it can
  std::optional<FoundLayout> found;   // its prediction; empty if it cannot run
  std::size_t place = 0, ranked = 0;  // place among all layouts, counting from 1; 0: after the `ranked` fastest
};

struct SearchResult {
  std::vector<FoundLayout> best;                      // fastest first; equally fast layouts are ordered by their choices
  std::vector<std::vector<FoundLayout>> best_within;  // the same within each of SearchOptions::memory_parts; `best` is the first
  double layouts = 0;                                 // number of candidate layouts in the search space
  Refusals by_rules, by_memory;
  double by_reserve = 0;         // layouts of by_memory that would fit if the reserve of a device were used (Cluster::Device::reserve)
  std::optional<OwnLayout> own;  // empty unless the search was asked to place it
  double slower = 0;             // layouts that were discarded by their bound as slower than the best, and that are not known to be too large
  double least_slower = 0;       // lower bound in seconds of the fastest of these
  Index predicted = 0;           // number of layouts that were predicted
  bool ended = false;            // the time limit ended the search; a layout that takes least_slower or more may be missing in `best`
  MemoryTaken::Usage least;      // memory of the layout that needs least among those that do not fit in a device; 0: none
  Islands islands;               // islands of the ranks if there are several (cluster.emulate)
  std::size_t dry_runs = 0;
  double seconds = 0;  // taken by the search (search_time.hpp)
};

// State of a running search, for progress output.
struct SearchProgress {
  double layouts = 0;      // number of candidate layouts in the search space
  std::size_t ranked = 0;  // layouts whose place is known
  Index predicted = 0;     // layouts that were predicted
  std::size_t dry_runs = 0;
  double too_large = 0;                // layouts that do not fit in memory
  bool ending = false;                 // the time limit has passed, and the most promising layouts are being predicted
  double least_bytes = 0, usable = 0;  // least memory that one of these needs on a device, and the usable memory of that device; 0: none
};
using SearchWatch = std::function<void(const SearchProgress&)>;

enum class Pruning { bounds, none };  // bounds: skip layouts by lower bounds; none: predict every layout

struct SearchOptions {
  int best = 10;  // layouts to find
  Pruning pruning = Pruning::bounds;
  std::size_t waiting = 5'000'000;  // maximum number of queued candidates, about half a GiB
  std::size_t place_within = 0;     // if above 0, the search predicts the deck's own layout, and continues until its place is known or this many
                                    // layouts are ranked
  double seconds = std::numeric_limits<double>::infinity();  // after this time (search_time.hpp), the most promising layouts are predicted and
                                                             // the search ends
  double descent_seconds = 10;                               // since its begin, a search may descend for this time, even if its limit is shorter
  std::vector<double> memory_parts = {1};                    // parts of the usable memory, for each of which the fastest layouts are found
  SearchWatch watch = {};                                    // called after every candidate
  StageRuns* runs = nullptr;                                 // cache of dry runs that searches for one model share; null: none
};

// Uses the islands of the cluster if the deck names none. Throws Exit::config if the cluster has fewer devices than
// `ranks`, or if more candidates are queued than allowed.
SearchResult search(const RunConfig&, int ranks, const Cluster&, const Profile* = nullptr, const SearchOptions& = {});

}  // namespace gyr
