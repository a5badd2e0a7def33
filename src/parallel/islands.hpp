// SPDX-License-Identifier: BSD-3-Clause
// Islands of ranks: inside of one all are near each other and equally fast, between two only slow links lead (Holmes, Yang et al. 2023). Ranks of
// islands stand one behind the other: the first island has the first ranks.
//
// Stages of the pipeline are dealt to islands as wholes, so that what is frequent and large (sums over data and tensor ranks, keys of context ranks)
// stays inside, and only messages of the pipeline cross: positions by stage, then by data, context and tensor coordinate, onto ranks in order. That
// is possible where the ranks of an island are a multiple of those of a stage; otherwise replicas of a stage are parted, and at last its tensor
// ranks.
#pragma once

#include "modules/settings/settings.hpp"
#include "src/parallel/layout.hpp"

namespace gyr {

struct Island {
  std::string name;
  int ranks = 0;
  double speed = 1;  // of each rank, in any unit
  bool operator==(const Island&) const = default;
};
using Islands = std::vector<Island>;

int ranks_of(const Islands&);
int island_of(const Islands&, int rank);

// cluster.emulate, "name:ranks" or "name:ranks:speed" for each, with commas between: none where it is empty. Exit::config.
Islands read_islands(Section&);
std::string to_text(const Islands&);

// Layout::permutation: which rank stands at each position. `layout` has as many ranks as the islands.
std::vector<int> order_by_islands(const Layout& layout, const Islands&);

// Of each pipeline coordinate: that of the slowest rank which holds it.
std::vector<double> speeds_of_stages(const Layout&, const Islands&);

// Whether some ranks along this axis, alike in all other coordinates, are of different islands.
bool crosses(const Layout&, const Islands&, Axis);

// Which stages and layers an island has, and what crosses between islands, with the reason where it is more than messages of the pipeline.
std::string text_of(const Layout&, const Islands&);

}  // namespace gyr
