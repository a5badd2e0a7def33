// SPDX-License-Identifier: BSD-3-Clause
// Elements of weights that ranks have, at least: those that are cut evenly among tensor ranks, those that each of them has whole, and experts, which
// are dealt. What a rank keeps of them, of their gradients and of what the optimizer has of them, follows.
#pragma once

#include <unordered_map>

#include "src/planner/layouts/stage_contents.hpp"

namespace gyr {

// Of a rank: of experts, which fewer ranks have, and of all else.
struct Elements {
  double others = 0, experts = 0;
  Elements& operator+=(const Elements& e) { return others += e.others, experts += e.experts, *this; }
  friend Elements operator*(double times, const Elements& e) { return {times * e.others, times * e.experts}; }
  friend Elements most_of(const Elements& a, const Elements& b) { return {std::max(a.others, b.others), std::max(a.experts, b.experts)}; }
  Elements less(const Elements& e) const { return {std::max(0.0, others - e.others), std::max(0.0, experts - e.experts)}; }
  double sum() const { return others + experts; }
};

// Of a part of the model, or of a stage.
struct PartElements {
  double sharded = 0, whole = 0;  // of weights that tensor ranks cut, and that each of them has
  double experts = 0;             // that are dealt
  double trained_sharded = 0, trained_whole = 0, trained_experts = 0;
  double wide = 0;     // that are their own masters
  double weights = 0;  // how many they are of

  Elements on(const LayoutChoice&) const;
  Elements trained_on(const LayoutChoice&) const;
  Elements sharded_on(const LayoutChoice&) const;
};

// Of those that are cut where the layout cuts so much.
double part_of(const Elements&, const LayoutChoice&, Shard level);

// What decides where weights lie, and among whom: layouts that share it have the same on every rank.
struct WeightKey {
  std::array<int, 8> numbers;
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
  // `backwards`: all layers go back.
  WeightShards(const RunConfig&, StageContents&, bool backwards);

  const PartElements& of_type(std::size_t type) const { return parts_[type + 1]; }
  const std::vector<PartElements>& of_stages(const LayoutChoice&);
  // Bytes at least of weights, gradients and states of each rank of the pipeline.
  const std::vector<double>& bytes_of_states(const LayoutChoice&);

 private:
  double bytes_of_state(const LayoutChoice&, int rank);
  PartElements of_stage(const StageContent&) const;

  const RunConfig& run_;
  StageContents& contents_;
  std::vector<PartElements> parts_;  // the embedding, a layer of each type, the head
  std::map<const Stages*, std::vector<PartElements>> of_stages_;
  ByWeights<std::vector<double>> of_states_;
};

}  // namespace gyr
