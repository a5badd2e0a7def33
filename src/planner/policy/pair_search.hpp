// SPDX-License-Identifier: BSD-3-Clause
// Search for the fastest pair of a layout of training and a layout of generation.
//   seconds(t, g) = training(t) + others(t) + generation(t, g) + move(t, g);  move = 0 if generation borrows the weights of training
//   memory of a rank = sum of the bytes kept by the parts + the largest working set of any part, at most its usable bytes
// Pairs are visited in the order of a lower bound, training(t) + generation(t, g). The other terms are computed only for pairs
// whose bound is below the fastest pair found, so that the result is that of computing all pairs.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr {

// Seconds of the calls of a part of a plan, and its bytes by rank of the run.
struct PlanPart {
  double seconds = 0;
  std::vector<double> kept, working;  // kept during the whole iteration; needed by one call at a time
};

struct PairSpace {
  std::vector<PlanPart> training;
  std::vector<std::optional<PlanPart>> borrowed;         // by layout of training: generation in that layout, if it can generate
  std::vector<PlanPart> copies;                          // generation in a layout of its own
  std::function<PlanPart(std::size_t training)> others;  // models beside the trained one, and scoring
  std::function<double(std::size_t training, std::size_t copy)> move_seconds;
  // True if a copy has the layout of training, which then lends its weights, if it can. Empty: no copy.
  std::function<bool(std::size_t training, std::size_t copy)> is_needless = {};
  std::vector<double> usable;  // bytes by rank
  // True if a pair that may be among the fastest is left out, because the time of the search is over. Asked once a pair is found. Empty: no.
  std::function<bool(std::size_t training, std::optional<std::size_t> copy)> is_left_out = {};
};

struct LayoutPair {
  std::size_t training = 0;
  std::optional<std::size_t> copy;  // empty: generation borrows the weights
  double seconds = 0;
  double bytes = 0;  // of the rank with the least memory left
};

struct PairResult {
  std::vector<LayoutPair> best;               // fastest first
  Index pairs = 0, too_large = 0, moves = 0;  // in the space; visited and too large for memory; visited with their move
  Index left_out = 0;                         // pairs that were left out and may be among the fastest
  double least_left_out = 0;                  // lower bound of their seconds
};

// The `most` fastest pairs that fit; equally fast ones in the order of their indices.
PairResult fastest_pairs(const PairSpace&, std::size_t most);

}  // namespace gyr
