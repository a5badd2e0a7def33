// SPDX-License-Identifier: BSD-3-Clause
// Search for the fastest iteration of policy training: a layout of training, and that of generation or a copy of the weights
// in a layout of its own. Further models keep the layouts of their keys, or follow the layout of training.
//   layouts of training    the fastest of a search for a step (search.hpp) within parts of the memory, because generation and further
//                          models need the rest; the layout of the deck; the heuristic (heuristic.hpp)
//   copies                 copy_candidates.hpp
// Among these candidates the result is exact (pair_search.hpp).
#pragma once

#include <functional>
#include <limits>
#include <string>

#include "src/planner/policy/iteration_times.hpp"
#include "src/planner/policy/pair_search.hpp"
#include "src/planner/search/search.hpp"

namespace gyr {

struct FoundIteration {
  LayoutChoice training;
  GenerationLayout generation;  // a copy of the weights if generation.own()
  std::string place;            // ranks, layout and precision of the copy as text
  RunConfig run;                // with these layouts
  double seconds = 0;           // of an iteration
  double training_seconds = 0, generation_seconds = 0, move_seconds = 0, others_seconds = 0;
  double bytes = 0;  // of the rank with the least memory left
  // Its calls; only of the first of a result and of the heuristic.
  std::optional<IterationTimes> times = {};
  std::vector<std::string> lines = {};  // deck overrides
};

struct PolicySearchResult {
  std::vector<FoundIteration> best;         // fastest first
  std::optional<FoundIteration> heuristic;  // empty: it does not fit
  Index layouts = 0, copies = 0;            // candidates
  Index refused = 0;                        // candidates that the rules of further models or of generation refuse
  PairResult counts;
  double seconds = 0;  // of the search
  // The time limit ended the search for layouts of training, which may lack some, or that for pairs.
  bool layouts_ended = false, ended = false;
  double least_left_out = 0;  // lower bound in seconds of pairs of these candidates that were left out
};

// Bytes of the rank of a run with the least memory left, by a dry run of all its models; empty if they do not fit.
using BytesOfRun = std::function<std::optional<double>(const RunConfig&)>;

struct PolicySearchOptions {
  SearchOptions training = {};                               // of the search for layouts of training, which takes about a quarter of the time
  std::size_t most = 10;                                     // iterations to find
  double seconds = std::numeric_limits<double>::infinity();  // after this time, the fastest of the pairs that are known is the result
  // Checks the first of the result and the heuristic. Without it, memory is that of the representative ranks of each stage.
  BytesOfRun bytes = {};
};

PolicySearchResult policy_search(const RunConfig&, int ranks, const PassMachine&, const PolicySearchOptions& = {});

}  // namespace gyr
