// SPDX-License-Identifier: BSD-3-Clause
// What the stages of layouts have, and where they are. Layouts that differ in nothing else share what is known of them.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "src/planner/layouts/part_run.hpp"

namespace gyr {

// Of the layers of each stage.
struct StageContent {
  std::vector<int> layers;   // by type (LayerTypes)
  std::vector<int> staying;  // of them, those that do not swap where others do
  bool first = false, last = false;
};

struct Stages {
  std::vector<Span> spans;
  std::vector<StageContent> contents;
  std::vector<std::vector<int>> islands;  // on which the first rank of each rank of the pipeline, or a replica of it, is
};

class StageContents {
 public:
  StageContents(const RunConfig&, const Cluster&);

  const LayerTypes& types() const { return types_; }
  const Stages& of(const LayoutChoice&);
  Layout layout_of(const LayoutChoice&);
  // Whether a layer of a stage swaps what it keeps.
  bool offloads(const Span& stage, Index layer) const;

 private:
  std::vector<Span> spans_of(const LayoutChoice&) const;
  std::vector<StageContent> contents_of(const std::vector<Span>&) const;
  std::vector<std::vector<int>> islands_of(const LayoutChoice&, const Layout&) const;
  Layout layout_of(const LayoutChoice&, const std::vector<Span>&) const;

  const RunConfig& run_;
  const Cluster& cluster_;
  LayerTypes types_;
  // By what stages depend on: the pipeline, and with islands where ranks stand.
  using Key = std::array<int, 6>;
  Key key_of(const LayoutChoice&) const;
  std::map<Key, Stages> known_;
  std::pair<Key, const Stages*> last_ = {};  // that was asked for, and is mostly asked for again
};

// The first position of a stage.
int first_of(const Layout&, int stage);

// Bytes of the activations that go to the next stage.
Index message_bytes(const RunConfig&, const LayoutChoice&);

}  // namespace gyr
