// SPDX-License-Identifier: BSD-3-Clause
// From one layout of a model's weights to another: which rank sends which part of which weight to whom.
#pragma once

#include "src/parallel/layout.hpp"

namespace gyr {

// A weight as some stage has it, or what training keeps beside it.
struct PlacedTensor {
  Weight weight;
  int stage;  // coordinate on the pipeline axis
  bool trained = true;
  FlatCut cut = {};  // of a share, where ranks along token_axes keep parts of it
  Content content = Content::weight;
  DType dtype = DType::f32;  // as it is stored
};

// What the rank at a position holds of it; nothing where another stage does. Copies are counted along all axes but the pipeline.
std::vector<Held> held_at(const PlacedTensor&, const Layout&, int position);
// The same of what it keeps of a share that is cut.
std::vector<Held> kept_at(const PlacedTensor&, const Layout&, int position);

// A box of a tensor on its way from one rank to others.
struct Move {
  std::size_t tensor;  // number in a list
  Box box;
  int from;
  std::vector<int> to = {};  // rising; several: a broadcast; none: not decided yet

  Index elements_sent() const { return elements(box.count) * Index(to.size()); }
};

// What must be sent so that every rank holds what `to` says after it held what `from` says: the same weights in the same order, on as many
// ranks. Nothing that a rank holds already is sent to it. Each box comes from one of its holders: from one on the same node where there is one,
// then from the one that has sent least so far, then from the lowest rank. Every rank finds the same answer without asking the others.
std::vector<Move> moves(const std::vector<PlacedTensor>& from, const Layout& before, const std::vector<PlacedTensor>& to, const Layout& after,
                        int ranks_per_node);

}  // namespace gyr
