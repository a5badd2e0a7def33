// SPDX-License-Identifier: BSD-3-Clause
// Resharding plan from one layout of a model's weights to another: which rank sends which part of which weight to which
// ranks.
#pragma once

#include "src/parallel/layout.hpp"

namespace gyr {

// A weight on a pipeline stage, or its optimizer state.
struct PlacedTensor {
  Weight weight;
  int stage;  // pipeline stage: coordinate on the pipeline axis
  bool trained = true;
  FlatShard flat_shard = {};  // position of the tensor-parallel shard in a ZeRO-sharded run
  Content content = Content::weight;
  DType dtype = DType::f32;  // dtype in which the tensor is stored
};

// Boxes that the rank at a position holds; none if the weight is on another stage. Copies are counted along all axes
// except the pipeline.
std::vector<Held> held_at(const PlacedTensor&, const Layout&, int position);
// Boxes of the ZeRO part of its shard that the rank keeps.
std::vector<Held> kept_at(const PlacedTensor&, const Layout&, int position);

// A box of a tensor that one rank sends to others.
struct Move {
  std::size_t tensor;  // index in the list of tensors passed to moves()
  Box box;
  int from;
  std::vector<int> to = {};  // receiving ranks, ascending; several: a broadcast; empty: not decided yet

  Index elements_sent() const { return elements(box.count) * Index(to.size()); }
};

// Transfers after which every rank holds what `to` specifies, if it held what `from` specifies: the same weights in the
// same order, on the same number of ranks. No rank receives elements that it already holds. The sender of each box is
// one of its holders: preferably on the same node, then the one that has sent least so far, then the lowest rank. Every
// rank computes the same list without communication.
std::vector<Move> moves(const std::vector<PlacedTensor>& from, const Layout& before, const std::vector<PlacedTensor>& to, const Layout& after,
                        int ranks_per_node);

}  // namespace gyr
