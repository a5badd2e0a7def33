// SPDX-License-Identifier: BSD-3-Clause
// Dry run of a model with one layer of each type, counted part by part: the embedding, each layer type and the head,
// independent of their stage. From these counts, lower bounds of stages with many layers follow in microseconds.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>

#include "src/planner/layouts/layout_choice.hpp"
#include "src/planner/predict/rank_costs.hpp"

namespace gyr {

// Cost of one forward or one backward of a part on one rank.
struct PartCount {
  std::vector<double> compute = {};                                // seconds of computation on a device of each island of the cluster
  std::vector<KernelBound> floor = {};                             // the same by kind of kernel, as lower bound; empty if kernels were measured
  std::vector<std::pair<int, TrafficCount::Line>> transfers = {};  // index in PartsOfRank::communicators, and the transfer
  std::vector<std::vector<OverlapCount>> hidden = {};              // those of `transfers` that overlap with computation, by island
};

struct Part {
  PartCount forward, backward_input, backward_weights;  // an unsplit backward is in backward_input
  Index kept = 0;                                       // bytes of activations that one micro-batch keeps for its backward, lower bound
  double copied = 0;                                    // bytes of these that are offloaded (activation.policy), in each direction
  Index most = 0;  // peak device bytes during a layer's backward or in the head, besides `kept` of other parts, lower bound
  Index back = 0;  // layer: peak bytes during its backward minus the bytes alive before it
};

// Linear interpolation in activation.alpha, the fraction of rows that is offloaded: `none` at 0, `all` at 1.
inline double between(double none, double all, double fraction) { return none + fraction * (all - none); }

// Counts of the rank at these tensor and context coordinates, which represents other ranks.
struct PartsOfRank {
  int tensor = 0, context = 0;
  std::vector<Part> parts;         // costs of the embedding, of one layer of each type, and of the head
  std::vector<Part> least = {};    // with offload: the same at the smallest alpha of a range
  std::vector<Part> staying = {};  // with offload: one layer of each type that is not offloaded
  std::vector<std::string> communicators = {};
  // Bytes that a part offloads if the fraction `fraction` of the rows is offloaded, interpolated between the ends of the
  // range.
  double copied(std::size_t part, double fraction) const {
    return least.empty() ? parts[part].copied : between(least[part].copied, parts[part].copied, fraction);
  }
};

struct PartRun {
  std::vector<PartsOfRank> ranks;
  bool split = false;  // backwards are split into gradients of the input and of the weights
};

// Layer types of a model. Encoder layers and decoder layers are different types.
class LayerTypes {
 public:
  explicit LayerTypes(const ModelConfig&);
  // Pattern of a model with one layer of each type, in order of first occurrence.
  const std::string& pattern() const { return pattern_; }
  int count() const { return int(pattern_.size()); }
  int of_layer(Index layer) const { return of_layer_.at(std::size_t(layer)); }

 private:
  std::string pattern_;
  std::vector<int> of_layer_;
};

// Range of activation.alpha, both ends included.
struct FractionRange {
  double least = 1, most = 1;
  auto operator<=>(const FractionRange&) const = default;
};

// Cache of dry runs by the settings that they depend on: tensor, context and expert parallel sizes, micro-batch size,
// activation checkpointing and offload.
class PartRuns {
 public:
  PartRuns(const RunConfig&, const Cluster&, const Profile*);
  // Dry run for a layout. `split`: backwards are split into gradients of the input and of the weights. With offload,
  // both ends of the range of alpha are counted; values between them are interpolated linearly.
  const PartRun& of(const LayoutChoice&, bool split = false, const FractionRange& = {});
  // The same dry run without offload.
  const PartRun& of_kept(const LayoutChoice& c) { return counted(c, false, {}); }
  std::size_t count() const { return runs_.size(); }
  // True if every layer trains the same weights as the layer of its type in the model with one layer per type. If
  // false, the parts are counted with all weights frozen and without adapters.
  bool train_alike() const { return train_alike_; }

 private:
  // Dry run with the fraction `fraction` of the rows offloaded; without a value, nothing is offloaded.
  const PartRun& counted(const LayoutChoice&, bool split, std::optional<double> fraction);
  PartRun run(const LayoutChoice&, bool split, std::optional<double> fraction);
  PartRun joined(const LayoutChoice&, bool split, const FractionRange&);
  PartsOfRank counted_on(const EngineConfig&, const Layout&, int position);

  const RunConfig& run_;
  const Cluster& cluster_;
  const Profile* profile_;
  LayerTypes types_;
  bool train_alike_;
  // Settings that a dry run depends on, besides the offloaded fraction.
  using Key = std::array<Index, 9>;
  static Key key_of(const LayoutChoice&, bool split);
  std::map<std::pair<Key, std::optional<double>>, PartRun> runs_;
  std::map<std::pair<Key, FractionRange>, PartRun> joined_;
  KnownGemms known_;
};

}  // namespace gyr
