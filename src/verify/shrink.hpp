// SPDX-License-Identifier: BSD-3-Clause
// A deck made small: the same layout, and of every size the smallest that meets it in the same way, so that what is wrong with the deck's layout
// is wrong with the small one's, and a step takes a moment.
#pragma once

#include "src/config/run_config.hpp"

namespace gyr {

// How a deck's sizes meet its layout: what divides, what is left over, and how many ranks hold the same. Names are those of keys.
using TriggerKeys = std::map<std::string, std::vector<Index>>;
TriggerKeys divisibility_of(const RunConfig&, const Layout&);

struct Shrunk {
  RunConfig run;            // its parallel.data, parallel.layers and shares of mixers are said
  std::vector<Index> from;  // of each of its layers, the number of the layer of the deck that it stands for
};

// The same meeting. Of every stage a layer of each kind, in the deck's order, and a second where there is one: layers are of a kind where their type
// and what is frozen of them are the same.
Shrunk shrunk(const RunConfig&, const Layout&);

// What was made smaller and from what, a row each, for people.
std::string shrunk_table(const RunConfig& deck, const Layout&, const Shrunk&);

}  // namespace gyr
