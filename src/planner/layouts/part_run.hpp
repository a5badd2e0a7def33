// SPDX-License-Identifier: BSD-3-Clause
// A dry run of a model that has a layer of each type, part by part: what a layer takes of each type, the embedding and the head, whatever stage they
// are on. From it follows in microseconds what no stage of many layers can be faster or smaller than.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>

#include "src/planner/layouts/layout_choice.hpp"
#include "src/planner/predict/rank_costs.hpp"

namespace gyr {

// What a forward, or a backward, of a part does on one rank.
struct PartCount {
  std::vector<double> compute = {};                                // seconds, on each island of the cluster
  std::vector<KernelBound> floor = {};                             // the same by kind of kernel; nothing where kernels were measured
  std::vector<std::pair<int, TrafficCount::Line>> transfers = {};  // by place of the communicator
  std::vector<std::vector<OverlapCount>> hidden = {};              // of them, on each island
};

struct Part {
  PartCount forward, backward_input, backward_weights;  // a backward that is not split is that of the input
  Index kept = 0;                                       // bytes that a micro-batch leaves there for its backward, at least
  double copied = 0;                                    // of them that it swaps (activation.policy): out, and back
  Index most = 0;                                       // bytes of the device at least while a layer goes back, or the head computes, besides `kept`s
  Index back = 0;                                       // of a layer: bytes while it goes back besides those that are there before
};

// What is linear in the share of rows that are swapped.
inline double between(double none, double all, double share) { return none + share * (all - none); }

// Of the rank at these coordinates, which stands for others.
struct PartsOfRank {
  int tensor = 0, context = 0;
  std::vector<Part> parts;         // the embedding, a layer of each type, the head
  std::vector<Part> least = {};    // where layers swap: the same at the least of two shares
  std::vector<Part> staying = {};  // ... and of each type one that does not
  std::vector<std::string> communicators = {};
  // Bytes that a part swaps at a share between the two.
  double copied(std::size_t part, double share) const {
    return least.empty() ? parts[part].copied : between(least[part].copied, parts[part].copied, share);
  }
};

struct PartRun {
  std::vector<PartsOfRank> ranks;
  bool split = false;  // its backwards
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

// activation.alpha is one of these, the ends included.
struct Shares {
  double least = 1, most = 1;
  auto operator<=>(const Shares&) const = default;
};

// Part runs of a model by what they depend on: ranks that share layers, sequences and experts, micro-batch and recomputation, and what is swapped.
class PartRuns {
 public:
  PartRuns(const RunConfig&, const Cluster&, const Profile*);
  // `split`: backwards, into gradients of the input and of weights. Where layers swap at both ends of the shares: what is between them is linear in
  // the share.
  const PartRun& of(const LayoutChoice&, bool split = false, const Shares& = {});
  // Of the same run if it swapped nothing.
  const PartRun& of_kept(const LayoutChoice& c) { return counted(c, false, {}); }
  std::size_t count() const { return runs_.size(); }
  // Whether every layer trains what that of its type does in the model of each type. Where not, parts train nothing, and have no adapters.
  bool train_alike() const { return train_alike_; }

 private:
  // A run with this share; none: that swaps nothing.
  const PartRun& counted(const LayoutChoice&, bool split, std::optional<double> share);
  PartRun run(const LayoutChoice&, bool split, std::optional<double> share);
  PartRun joined(const LayoutChoice&, bool split, const Shares&);
  PartsOfRank counted_on(const EngineConfig&, const Layout&, int position);

  const RunConfig& run_;
  const Cluster& cluster_;
  const Profile* profile_;
  LayerTypes types_;
  bool train_alike_;
  // What a run depends on, and the share.
  using Key = std::array<Index, 9>;
  static Key key_of(const LayoutChoice&, bool split);
  std::map<std::pair<Key, std::optional<double>>, PartRun> runs_;
  std::map<std::pair<Key, Shares>, PartRun> joined_;
  KnownGemms known_;
};

}  // namespace gyr
