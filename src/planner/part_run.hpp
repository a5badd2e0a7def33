// SPDX-License-Identifier: BSD-3-Clause
// A dry run of a model that has a layer of each type, part by part: what a layer takes of each type, the embedding and the head, whatever stage they
// are on. From it follows in microseconds what no stage of many layers can be faster or smaller than.
#pragma once

#include <memory>

#include "src/planner/layout_choice.hpp"
#include "src/planner/rank_costs.hpp"

namespace gyr {

// What a forward, or a backward, of a part does on one rank.
struct PartCount {
  double compute = 0;                                              // seconds
  KernelFloor floor = {};                                          // the same by kind of kernel; none where kernels were measured
  std::vector<std::pair<int, TrafficCount::Line>> transfers = {};  // by place of the communicator
};

struct Part {
  PartCount forward, backward_input, backward_weights;  // a backward that is not split is that of the input
  Index kept = 0;                                       // bytes that a micro-batch leaves there for its backward, at least
};

// Of the rank at these coordinates, which stands for others.
struct PartsOfRank {
  int tensor = 0, context = 0;
  std::vector<Part> parts;  // the embedding, a layer of each type, the head
  std::vector<std::string> communicators;
};

struct PartRun {
  std::vector<PartsOfRank> ranks;
};

// The types of a model's layers: those of its encoder apart from those behind.
class LayerTypes {
 public:
  explicit LayerTypes(const ModelConfig&);
  // A model of each type once, in their order.
  const std::string& pattern() const { return pattern_; }
  int count() const { return int(pattern_.size()); }
  int of_layer(Index layer) const { return of_layer_.at(std::size_t(layer)); }

 private:
  std::string pattern_;
  std::vector<int> of_layer_;
};

// Part runs of a model by what they depend on: ranks that share layers, sequences and experts, micro-batch and recomputation.
class PartRuns {
 public:
  PartRuns(const RunConfig&, const Cluster&, const Profile*);
  // `split`: backwards, into gradients of the input and of weights.
  const PartRun& of(const LayoutChoice&, bool split = false);
  std::size_t count() const { return runs_.size(); }

 private:
  PartRun counted(const LayoutChoice&, bool split);
  PartsOfRank counted_on(const EngineConfig&, const Layout&, int position);

  const RunConfig& run_;
  const Cluster& cluster_;
  const Profile* profile_;
  LayerTypes types_;
  std::map<std::string, PartRun> runs_;
  KnownProducts known_;
};

}  // namespace gyr
