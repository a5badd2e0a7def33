// SPDX-License-Identifier: BSD-3-Clause
// From one layout of a model's weights to another: which rank sends which part of which weight to whom.
#pragma once

#include "src/parallel/layout.hpp"

namespace gyr {

struct PlacedWeight {
  Weight weight;
  int stage;  // coordinate on the pipeline axis
  bool trained = true;
};

// What the rank at a position holds of a weight; nothing where another stage does. Copies are counted along all axes but the pipeline.
std::vector<Held> held_at(const PlacedWeight&, const Layout&, int position);

// A box of a weight on its way from one rank to others.
struct Move {
  std::size_t weight;
  Box box;
  int from;
  std::vector<int> to;  // rising; several: a broadcast

  Index elements_sent() const { return elements(box.count) * Index(to.size()); }
};

// What must be sent so that every rank holds what `to` says after it held what `from` says: the same weights in the same order, on as many
// ranks. Nothing that a rank holds already is sent to it. Each box comes from one of its holders: from one on the same node where there is one,
// then from the one that has sent least so far, then from the lowest rank. Every rank finds the same answer without asking the others.
std::vector<Move> moves(const std::vector<PlacedWeight>& from, const Layout& before, const std::vector<PlacedWeight>& to, const Layout& after,
                        int ranks_per_node);

}  // namespace gyr
