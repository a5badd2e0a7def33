// SPDX-License-Identifier: BSD-3-Clause
// Reduces a deck to a small test model on the same layout. Each size becomes the smallest one with the same
// divisibility properties on the layout. An error in the deck's layout therefore shows in the small model, whose step
// takes only a moment.
#pragma once

#include "src/config/run_config.hpp"

namespace gyr {

// Divisibility of a deck's sizes on its layout, by key: quotients, remainders, and the number of ranks with the same
// data.
using DivisibilityByKey = std::map<std::string, std::vector<Index>>;
DivisibilityByKey divisibility_of(const RunConfig&, const Layout&);

struct Shrunk {
  RunConfig run;            // with parallel.data, parallel.layers and the distribution of mixers set explicitly
  std::vector<Index> from;  // for each of its layers, the index of the corresponding layer in the deck
};

// Reduced run with the same divisibility. Every stage keeps one layer of each kind, in the deck's order, and at least
// two layers if it has two. Layers are of the same kind if their type, their stack (encoder or not) and their frozen
// weights agree.
Shrunk shrunk(const RunConfig&, const Layout&);

// Table for users: one row per reduced size, with the value of the deck and the reduced value.
std::string shrunk_table(const RunConfig& deck, const Layout&, const Shrunk&);

}  // namespace gyr
