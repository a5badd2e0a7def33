// SPDX-License-Identifier: BSD-3-Clause
// Layers and islands of the stages of a layout. Results are cached and reused by layouts with the same stages.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "src/planner/layouts/part_run.hpp"

namespace gyr {

// Layers of a stage.
struct StageContent {
  std::vector<int> layers;   // number of layers by type (LayerTypes)
  std::vector<int> staying;  // number of layers by type that are not offloaded while others are
  bool first = false, last = false;
};

struct Stages {
  std::vector<Span> spans;
  std::vector<StageContent> contents;
  std::vector<std::vector<int>> islands;  // islands of each pipeline rank: those of its first rank and of that rank's replicas
};

class StageContents {
 public:
  StageContents(const RunConfig&, const Cluster&);

  const LayerTypes& types() const { return types_; }
  const Stages& of(const LayoutChoice&);
  Layout layout_of(const LayoutChoice&);
  // True if this layer of the stage offloads its kept activations.
  bool offloads(const Span& stage, Index layer) const;

 private:
  std::vector<Span> spans_of(const LayoutChoice&) const;
  std::vector<StageContent> contents_of(const std::vector<Span>&) const;
  std::vector<std::vector<int>> islands_of(const LayoutChoice&, const Layout&) const;
  Layout layout_of(const LayoutChoice&, const std::vector<Span>&) const;

  const RunConfig& run_;
  const Cluster& cluster_;
  LayerTypes types_;
  // Settings that stages depend on: the pipeline, and all axes if a permutation places the ranks on islands.
  using Key = std::array<int, 6>;
  Key key_of(const LayoutChoice&) const;
  std::map<Key, Stages> known_;
  std::pair<Key, const Stages*> last_ = {};  // most recent result, which is usually requested again
};

// First position of a stage.
int first_of(const Layout&, int stage);

// Sends of a micro-batch from the stage that ends after the first `layers` layers to the next one: every tensor that
// travels there (bundle_shapes.hpp). Without padding, so at most what a run sends.
Traffic message_of(const RunConfig&, const LayoutChoice&, Index layers);

}  // namespace gyr
