// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/layouts/rank_places.hpp"

#include <algorithm>

namespace gyr {

namespace {

int position_of(const Layout& layout, int rank, int tensor, int context) {
  return layout.position_at([&](Axis axis) {
    return axis == Axis::pipeline ? rank : axis == Axis::tensor ? tensor : axis == Axis::context ? context : 0;
  });
}

// Communicators on which any part communicates.
std::vector<bool> used_by(const PartsOfRank& parts) {
  std::vector<bool> used(parts.communicators.size());
  for (const Part& part : parts.parts)
    for (const PartCount* count : {&part.forward, &part.backward_input, &part.backward_weights})
      for (const auto& [communicator, line] : count->transfers) used[std::size_t(communicator)] = true;
  return used;
}

}  // namespace

const Places& RankPlaces::of(const LayoutChoice& c, const PartRun& run, bool exact) {
  const auto [known, fresh] = known_.try_emplace({c.data, c.pipeline, c.context, c.tensor, c.attention_ranks, c.expert, exact});
  Places& places = known->second;
  if (!fresh) return places;
  const Layout layout = contents_.layout_of(c);
  add_pipeline(places, c, layout);
  for (const PartsOfRank& parts : run.ranks) add_kinds(places, c, layout, parts, exact);
  return places;
}

// As in a prediction, messages are timed for the first replica on the first island.
void RankPlaces::add_pipeline(Places& places, const LayoutChoice& c, const Layout& layout) const {
  for (int rank = 0; rank < c.pipeline; ++rank) {
    const int here = on_islands(layout, position_of(layout, rank, 0, 0), cluster_).begin()->second;
    const std::vector<int> pipeline = ranks_of(layout, here, name_of(Axis::pipeline).data());
    places.replicas.push_back(placement_of(ranks_of(layout, here, token_axes.text()), cluster_));
    places.expert_replicas.push_back(c.expert > 1 ? placement_of(ranks_of(layout, here, "expert-replicas"), cluster_) : places.replicas.back());
    places.neighbours.push_back(placement_of({layout.rank_at(here), pipeline[std::size_t((rank + 1) % c.pipeline)]}, cluster_));
  }
  places.sharing = placement_of(ranks_of(layout, 0, name_of(Axis::context).data()), cluster_);
}

void RankPlaces::add_kinds(Places& places, const LayoutChoice& c, const Layout& layout, const PartsOfRank& parts, bool exact) const {
  const std::vector<bool> used = used_by(parts);
  std::vector<Place>& kinds = places.kinds.emplace_back();
  std::vector<std::vector<int>>& kinds_of = places.kinds_of.emplace_back();
  for (int rank = 0; rank < c.pipeline; ++rank) {
    std::vector<int>& kinds_here = kinds_of.emplace_back();
    for (const auto& [island, there] : on_islands(layout, position_of(layout, rank, parts.tensor, exact ? parts.context : 0), cluster_)) {
      Place place{island, std::vector<GroupPlacement>(used.size())};
      for (std::size_t i = 0; i < used.size(); ++i)
        if (used[i]) place.groups[i] = placement_of(ranks_of(layout, there, parts.communicators[i]), cluster_);
      const auto same = std::find(kinds.begin(), kinds.end(), place);
      kinds_here.push_back(int(same - kinds.begin()));
      if (same == kinds.end()) kinds.push_back(std::move(place));
    }
  }
}

}  // namespace gyr
