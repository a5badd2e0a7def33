// SPDX-License-Identifier: BSD-3-Clause
// Islands: sets of ranks with the same device type and fast interconnect, connected by slow links (Holmes, Yang et al. 2023). Ranks are numbered
// island by island: the first island has the first ranks.
//
// Each pipeline stage is placed inside one island. Frequent and large transfers (reductions over data and tensor ranks, K/V of context ranks) then
// stay inside, and only pipeline messages cross. For this, positions are sorted by stage, then by data, context and tensor coordinate, and get the
// ranks in order. It works if the ranks of an island are a multiple of those of a stage. Otherwise replicas of a stage are on different islands, and
// in the worst case its tensor-parallel ranks.
#pragma once

#include "modules/settings/settings.hpp"
#include "src/parallel/layout.hpp"

namespace gyr {

struct Island {
  std::string name;
  int ranks = 0;
  double speed = 1;  // relative speed of each rank, in any unit
  bool operator==(const Island&) const = default;
};
using Islands = std::vector<Island>;

int ranks_of(const Islands&);
int island_of(const Islands&, int rank);

// Reads cluster.emulate: "name:ranks" or "name:ranks:speed" for each island, separated by commas; empty: no islands.
// Exit::config if it is malformed.
Islands read_islands(Section&);
std::string to_text(const Islands&);

// Layout::permutation for these islands: the rank at each position. `layout` must have as many ranks as the islands.
std::vector<int> order_by_islands(const Layout& layout, const Islands&);

// Speed of each pipeline rank (coordinate on the pipeline axis): that of its slowest rank.
std::vector<double> speeds_of_stages(const Layout&, const Islands&);

// True if some ranks that differ only along this axis are on different islands.
bool crosses(const Layout&, const Islands&, Axis);

// Log text: stages and layers of each island, and the traffic between islands, with the reason if it is more than
// pipeline messages.
std::string text_of(const Layout&, const Islands&);

}  // namespace gyr
