// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/moves.hpp"

#include <algorithm>
#include <map>

namespace gyr {

namespace {

// A box and the ranks that hold it. The boxes of a weight are disjoint: a layout splits a weight into parts, and copies
// of a part are equal.
struct MovedPart {
  Box box;
  std::vector<int> ranks;
};

std::vector<MovedPart> parts_of(const PlacedTensor& weight, const Layout& layout) {
  std::map<Shape, MovedPart> parts;  // key: first index of the part's box in each dimension
  for (int rank = 0; rank < layout.ranks(); ++rank)
    for (const Held& held : held_at(weight, layout, layout.position_of(rank))) {
      MovedPart& part = parts[held.box.first];
      part.box = held.box;
      part.ranks.push_back(rank);
    }
  std::vector<MovedPart> all;
  for (auto& [corner, part] : parts) all.push_back(std::move(part));
  return all;
}

// Chooses the holder that sends to `receiver`: on the same node first, then with the fewest elements sent, then the
// lowest rank.
int sender(const std::vector<int>& holders, int receiver, const std::vector<Index>& sent, int ranks_per_node) {
  const auto cost = [&](int rank) { return std::tuple(rank / ranks_per_node != receiver / ranks_per_node, sent[rank], rank); };
  return *std::min_element(holders.begin(), holders.end(), [&](int a, int b) { return cost(a) < cost(b); });
}

}  // namespace

std::vector<Held> held_at(const PlacedTensor& weight, const Layout& layout, int position) {
  if (layout.coordinate(position, Axis::pipeline) != weight.stage) return {};
  return place(weight.weight, layout.coordinates(position, all_but(Axis::pipeline))).boxes;
}

std::vector<Held> kept_at(const PlacedTensor& weight, const Layout& layout, int position) {
  if (layout.coordinate(position, Axis::pipeline) != weight.stage) return {};
  const Placement placement = place(weight.weight, layout.coordinates(position, weight_axes));
  const Span kept = weight.flat_shard.of(elements(placement.shape), layout.replicas(bool(weight.weight.expert), position).rank);
  return pieces_of(placement, kept.first, kept.last);
}

std::vector<Move> moves(const std::vector<PlacedTensor>& from, const Layout& before, const std::vector<PlacedTensor>& to, const Layout& after,
                        int ranks_per_node) {
  ensure(from.size() == to.size() && before.ranks() == after.ranks(), "moves: {} weights on {} ranks to {} on {}", from.size(), before.ranks(),
         to.size(), after.ranks());
  std::vector<Index> sent(std::size_t(before.ranks()), 0);
  std::vector<Move> all;
  for (std::size_t w = 0; w < from.size(); ++w) {
    const std::vector<MovedPart> old = parts_of(from[w], before);
    for (const MovedPart& wanted : parts_of(to[w], after))
      for (const MovedPart& part : old) {
        const auto box = common(part.box, wanted.box);
        if (!box) continue;
        std::map<int, std::vector<int>> receivers;  // receiving ranks by sending rank
        for (const int rank : wanted.ranks) {
          if (std::binary_search(part.ranks.begin(), part.ranks.end(), rank)) continue;
          const int by = sender(part.ranks, rank, sent, ranks_per_node);
          receivers[by].push_back(rank);
          sent[by] += elements(box->count);
        }
        for (auto& [by, ranks] : receivers) all.push_back({w, *box, by, std::move(ranks)});
      }
  }
  return all;
}

}  // namespace gyr
