// SPDX-License-Identifier: BSD-3-Clause
// Lower bound of the weight elements of a rank: weights that are evenly sharded over tensor-parallel ranks, weights
// that every tensor-parallel rank has in full, and expert weights. The memory of weights, gradients and optimizer
// states follows from it.
#pragma once

#include <unordered_map>

#include "src/planner/layouts/stage_contents.hpp"

namespace gyr {

// Elements per rank: expert weights, which are distributed over expert-parallel ranks, and all other weights.
struct Elements {
  double dense = 0, experts = 0;
  Elements& operator+=(const Elements& e) { return dense += e.dense, experts += e.experts, *this; }
  friend Elements operator*(double times, const Elements& e) { return {times * e.dense, times * e.experts}; }
  friend Elements most_of(const Elements& a, const Elements& b) { return {std::max(a.dense, b.dense), std::max(a.experts, b.experts)}; }
  Elements less(const Elements& e) const { return {std::max(0.0, dense - e.dense), std::max(0.0, experts - e.experts)}; }
  double sum() const { return dense + experts; }
};

// Elements of a part of the model, or of a stage.
struct PartElements {
  double sharded = 0, unsharded = 0;  // sharded over tensor-parallel ranks, and full on each of them
  double experts = 0;                 // number of elements of expert weights
  double trained_sharded = 0, trained_unsharded = 0, trained_experts = 0;
  double wide = 0;     // elements stored in the accumulator's type, which need no separate master weight
  double weights = 0;  // number of weight tensors

  Elements on(const LayoutChoice&) const;
  Elements trained_on(const LayoutChoice&) const;
  Elements sharded_on(const LayoutChoice&) const;
};

// Elements per rank at a sharding level: divided by the data-parallel ranks if the layout shards at this level or
// above.
double part_of(const Elements&, const LayoutChoice&, Shard level);

// Settings that determine the placement of weights. Layouts with equal keys have the same weights on every rank.
struct WeightKey {
  std::array<int, 8> sizes;
  explicit WeightKey(const LayoutChoice&);
  bool operator==(const WeightKey&) const = default;
  struct Hash {
    std::size_t operator()(const WeightKey&) const;
  };
};
template <class Value>
using ByWeights = std::unordered_map<WeightKey, Value, WeightKey::Hash>;

class WeightShards {
 public:
  // `backwards`: every layer runs a backward pass.
  WeightShards(const RunConfig&, StageContents&, bool backwards);

  const PartElements& of_type(std::size_t type) const { return parts_[type + 1]; }
  const std::vector<PartElements>& of_stages(const LayoutChoice&);
  // Lower bound of the bytes of weights, gradients and optimizer states on each pipeline rank.
  const std::vector<double>& bytes_of_states(const LayoutChoice&);

 private:
  double bytes_of_state(const LayoutChoice&, int rank);
  PartElements of_stage(const StageContent&) const;

  const RunConfig& run_;
  StageContents& contents_;
  std::vector<PartElements> parts_;  // elements of the embedding, of one layer of each type, and of the head
  std::map<const Stages*, std::vector<PartElements>> of_stages_;
  ByWeights<std::vector<double>> of_states_;
};

}  // namespace gyr
