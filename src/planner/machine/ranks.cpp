// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/machine/ranks.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace gyr {

namespace {

// Positions that differ from this one along the given axes only, in order.
std::vector<int> along(const Layout& layout, int position, Axes axes) {
  std::vector<int> all{0};
  for (const LayoutAxis& a : layout.axes) {
    std::vector<int> more;
    const int index_on_axis = layout.coordinate(position, a.axis);
    for (const int outer : all)
      for (int i = 0; i < a.size; ++i)
        if (axes.has(a.axis) || i == index_on_axis) more.push_back(outer * a.size + i);
    all = std::move(more);
  }
  return all;
}

std::vector<int> part(const std::vector<int>& all, std::size_t first, std::size_t count, std::size_t stride = 1) {
  std::vector<int> some;
  for (std::size_t i = 0; i < count; ++i) some.push_back(all.at(first + i * stride));
  return some;
}

std::vector<int> positions_of(const Layout& layout, int position, const std::string& name) {
  constexpr Axis each[] = {Axis::data, Axis::pipeline, Axis::context, Axis::tensor};
  if (name == all_axes.text()) return along(layout, position, all_axes);
  for (unsigned set = 0; set < 16; ++set) {
    Axes axes{};
    for (unsigned i = 0; i < 4; ++i)
      if (set >> i & 1) axes = axes + each[i];
    if (name == axes.text()) return along(layout, position, axes);
  }
  if (name == "embedding") {
    const std::vector<int> pipeline = along(layout, position, Axis::pipeline);
    return {pipeline.front(), pipeline.back()};
  }
  if (name == "expert" || name == "expert-replicas") {
    const std::vector<int> all = along(layout, position, token_axes);
    const std::size_t rank = std::size_t(layout.coordinate(position, token_axes)), ranks = std::size_t(layout.expert);
    return name == "expert" ? part(all, rank / ranks * ranks, ranks) : part(all, rank % ranks, all.size() / ranks, ranks);
  }
  for (const HeldBy by : {HeldBy::all, HeldBy::team, HeldBy::expert_ranks})
    if (name == name_of(by)) return layout.holders(by, position);
  const std::vector<int> tensor = along(layout, position, Axis::tensor);
  const int rank = layout.coordinate(position, Axis::tensor);
  const std::string base = name.substr(0, name.find('/'));
  std::vector<int> ranks = tensor;
  int index_on_axis = rank;
  if (base == "attention" || base == "ssm") {
    const Mixers mixers = layout.mixers();
    const Span team = mixers.team_of(rank);
    ranks = part(tensor, std::size_t(team.first), std::size_t(team.size()));
    index_on_axis = rank - int(team.first);
  }
  if (base == name) return ranks;
  const int size = name == "self" ? 1 : std::stoi(name.substr(base.size() + 1));
  return part(ranks, std::size_t(index_on_axis / size * size), std::size_t(size));
}

}  // namespace

GroupPlacement placement_of(const std::vector<int>& ranks, const Cluster& cluster) {
  std::map<Index, int> on_node;
  std::set<int> islands;
  for (const int rank : ranks) {
    const Cluster::Place place = cluster.place_of(rank);
    ++on_node[place.node];
    islands.insert(place.island);
  }
  GroupPlacement p{int(ranks.size()), int(on_node.size()), int(islands.size()), 0, islands.size() == 1 ? *islands.begin() : 0};
  for (const auto& [node, count] : on_node) p.max_ranks_per_node = std::max(p.max_ranks_per_node, count);
  return p;
}

std::vector<int> ranks_of(const Layout& layout, int position, const std::string& communicator) {
  if (communicator == "self") return {layout.rank_at(position)};
  std::vector<int> ranks = positions_of(layout, position, communicator);
  for (int& each : ranks) each = layout.rank_at(each);
  return ranks;
}

std::map<int, int> on_islands(const Layout& layout, int position, const Cluster& cluster) {
  if (cluster.parts.empty()) return {{0, position}};
  std::map<int, int> first;
  for (int data = 0; data < layout.size(Axis::data); ++data) {
    const int replica = layout.position_at([&](Axis a) { return a == Axis::data ? data : layout.coordinate(position, a); });
    first.try_emplace(cluster.place_of(layout.rank_at(replica)).island, replica);
  }
  return first;
}

}  // namespace gyr
