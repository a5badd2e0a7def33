// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/moves.hpp"

#include <algorithm>
#include <functional>
#include <tuple>

#include "kernels/base/printable.hpp"

namespace gyr {

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

std::vector<Held> stored_at(const PlacedTensor& tensor, const Layout& layout, int position) {
  return is_zero_sharded(tensor.content, layout.zero_shard()) ? kept_at(tensor, layout, position) : held_at(tensor, layout, position);
}

Content PlacedWeights::most_exact(const PlacedTensor& weight, DType wanted) const {
  const bool has_master = masters && weight.trained && weight.dtype != accumulator_of(weight.dtype);
  return has_master && wanted != weight.dtype ? Content::master : Content::weight;
}

namespace {

// A box and the world ranks that store it, ascending.
struct MovedPart {
  Box box;
  std::vector<int> ranks;
};

// Parts of a weight that ranks of a mesh store. They overlap only if several stages store the weight, and ZeRO shards it
// differently on each.
std::vector<MovedPart> parts_of(const std::vector<PlacedTensor>& copies, const PlacedWeights& model) {
  std::map<std::pair<Shape, Shape>, std::vector<int>> parts;  // key: first index and extent of the box
  for (int rank = 0; rank < model.layout.ranks(); ++rank)
    for (const PlacedTensor& copy : copies)
      for (const Held& held : stored_at(copy, model.layout, model.layout.position_of(rank)))
        parts[{held.box.first, held.box.count}].push_back(model.mesh.ranks[std::size_t(rank)]);
  std::vector<MovedPart> all;
  for (auto& [box, ranks] : parts) all.push_back({{box.first, box.second}, std::move(ranks)});
  return all;
}

bool holds(const MovedPart& part, int rank) { return std::binary_search(part.ranks.begin(), part.ranks.end(), rank); }

// Adds the parts of `box` outside of `inner`, which lies inside it.
void add_rest(Box box, const Box& inner, std::vector<Box>& rest) {
  for (std::size_t d = 0; d < box.first.size(); ++d) {
    const Index begin = box.first[d], end = begin + box.count[d], first = inner.first[d], last = first + inner.count[d];
    for (const auto& [from, to] : {std::pair(begin, first), std::pair(last, end)}) {
      if (from == to) continue;
      Box& part = rest.emplace_back(box);
      part.first[d] = from, part.count[d] = to - from;
    }
    box.first[d] = first, box.count[d] = last - first;
  }
}

// Removes from `missing` what overlaps with `part`, and calls taken(box) for each box that is removed.
template <class Taken>
void take_part(const Box& part, std::vector<Box>& missing, Taken&& taken) {
  std::vector<Box> rest;
  for (const Box& box : missing)
    if (const auto both = common(box, part)) {
      taken(*both);
      add_rest(box, *both, rest);
    } else {
      rest.push_back(box);
    }
  missing = std::move(rest);
}

class MovePlanner {
 public:
  MovePlanner(MovePlan& plan, int ranks_per_node) : plan_(plan), ranks_per_node_(ranks_per_node) {}

  // Adds the moves of weight number `tensor` of the receiving side. `stored`: parts that ranks of the sending side have.
  void add(std::size_t tensor, const std::vector<MovedPart>& stored) {
    const Index size = size_of(plan_.to.weights[tensor].dtype);
    for (const MovedPart& wanted : parts_of({plan_.to.weights[tensor]}, plan_.to)) {
      std::vector<const MovedPart*> sources;
      for (const MovedPart& part : stored)
        if (common(part.box, wanted.box)) sources.push_back(&part);
      std::map<std::tuple<Shape, Shape, int>, std::vector<int>> receivers;  // key: box and sending rank
      for (const int rank : wanted.ranks) {
        std::vector<Box> missing{wanted.box};
        for (const MovedPart* part : sources)
          if (holds(*part, rank)) take_part(part->box, missing, [&](const Box& box) { plan_.kept.push_back({tensor, box, rank, {rank}}); });
        for (const bool near : {true, false})
          for (const MovedPart* part : sources)
            if (near == has_near(*part, rank))
              take_part(part->box, missing, [&](const Box& box) {
                const int by = sender(part->ranks, rank);
                receivers[{box.first, box.count, by}].push_back(rank);
                sent_[by] += elements(box.count) * size;
              });
        ensure(missing.empty(), "{}: no rank stores a part that rank {} needs", plan_.to.weights[tensor].weight.name, rank);
      }
      for (auto& [key, ranks] : receivers) {
        const auto& [first, count, by] = key;
        plan_.sent.push_back({tensor, {first, count}, by, std::move(ranks)});
      }
    }
  }

 private:
  bool near(int a, int b) const { return a / ranks_per_node_ == b / ranks_per_node_; }
  bool has_near(const MovedPart& part, int rank) const {
    return std::any_of(part.ranks.begin(), part.ranks.end(), [&](int holder) { return near(holder, rank); });
  }
  // Chooses the holder that sends to `receiver`: on the same node first, then with the fewest bytes sent, then the lowest
  // rank.
  int sender(const std::vector<int>& holders, int receiver) {
    const auto cost = [&](int rank) { return std::tuple(!near(rank, receiver), sent_[rank], rank); };
    return *std::min_element(holders.begin(), holders.end(), [&](int a, int b) { return cost(a) < cost(b); });
  }

  MovePlan& plan_;
  int ranks_per_node_;
  std::map<int, Index> sent_;  // bytes by sending rank
};

void check_mesh(const PlacedWeights& model) {
  const std::vector<int>& ranks = model.mesh.ranks;
  require(int(ranks.size()) == model.layout.ranks(), Exit::config,
          "ranks {} are {} ranks, but the layout {} needs {}; list one rank for each position of the layout", model.mesh.text(), ranks.size(),
          model.layout.text(), model.layout.ranks());
  require(std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<int>()) == ranks.end(), Exit::config,
          "ranks {} are not ascending; list each rank of the model once, in ascending order", model.mesh.text());
}

using Copies = std::map<std::string, std::vector<PlacedTensor>>;
Copies copies_of(const PlacedWeights& model) {
  Copies all;
  for (const PlacedTensor& placed : model.weights) all[placed.weight.name].push_back(placed);
  return all;
}

// Requires that the models have the same weights.
void check_models(const Copies& from, const Copies& to) {
  const auto check = [](const Copies& some, const Copies& others) {
    for (const auto& [name, copies] : some) {
      const auto other = others.find(name);
      require(other != others.end() && other->second.front().weight.shape == copies.front().weight.shape, Exit::config,
              "{} is missing in the other model, or has another shape there; move weights only between models of one configuration", printable(name));
    }
  };
  check(from, to), check(to, from);
}

}  // namespace

MovePlan moves(PlacedWeights from, PlacedWeights to, int ranks_per_node) {
  check_mesh(from), check_mesh(to);
  Copies stored = copies_of(from);
  check_models(stored, copies_of(to));
  MovePlan plan{std::move(from), std::move(to), {}, {}, {}};
  MovePlanner planner(plan, ranks_per_node);
  for (std::size_t t = 0; t < plan.to.weights.size(); ++t) {
    std::vector<PlacedTensor>& copies = stored.at(plan.to.weights[t].weight.name);
    const Content content = plan.from.most_exact(copies.front(), plan.to.weights[t].dtype);
    for (PlacedTensor& copy : copies) copy.content = content;
    plan.contents.push_back(content);
    planner.add(t, parts_of(copies, plan.from));
  }
  return plan;
}

std::map<std::pair<int, int>, Index> MovePlan::bytes() const {
  std::map<std::pair<int, int>, Index> all;
  for (const Move& move : sent)
    for (const int rank : move.to) all[{move.from, rank}] += elements(move.box.count) * size_of(to.weights[move.tensor].dtype);
  return all;
}

std::string MovePlan::text() const {
  const auto by_pair = bytes();
  Index total = 0, local = 0;
  for (const auto& [pair, sum] : by_pair) total += sum;
  for (const Move& move : kept) local += elements(move.box.count) * size_of(to.weights[move.tensor].dtype);
  std::string text = fmt::format("weights move from {} on ranks {} to {} on ranks {}: {} bytes are sent, {} bytes are on their ranks already\n",
                                 from.layout.text(), from.mesh.text(), to.layout.text(), to.mesh.text(), total, local);
  for (const auto& [pair, sum] : by_pair) text += fmt::format("  rank {} to rank {}: {} bytes\n", pair.first, pair.second, sum);
  return text;
}

namespace {

// Distributes the boxes of a plan over buckets, in the order of the weights.
class MessageList {
 public:
  MessageList(const MovePlan& plan, Index bucket_bytes) : plan_(plan), bucket_bytes_(bucket_bytes) {}

  void add(const Move& move, int to) {
    const PlacedTensor& weight = plan_.to.weights[move.tensor];
    const Index most = std::max<Index>(1, bucket_bytes_ / size_of(weight.dtype)), size = elements(move.box.count);
    const auto [open, fresh] = open_.try_emplace(Key(move.from, to, weight.dtype, weight.in_int8 ? Index(move.tensor) : -1));
    std::size_t& bucket = open->second;
    const auto begin = [&] {
      bucket = all_.size();
      all_.push_back({move.from, to, weight.dtype});
    };
    if (fresh || all_[bucket].elements + std::min(size, most) > most) begin();
    const Placement part{move.box.count, {{move.box, Shape(move.box.first.size(), 0), {}}}};
    for (Index first = 0, last; first < size; first = last) {
      if (all_[bucket].elements == most) begin();
      last = std::min(size, first + most - all_[bucket].elements);
      for (const Held& piece : pieces_of(part, first, last)) all_[bucket].parts.push_back({move.tensor, piece.box});
      all_[bucket].elements += last - first;
    }
  }

  // A total order in which ranks send to different receivers at the same time, and in which the weights of all messages
  // advance alike.
  std::vector<MoveBucket> ordered(int ranks) && {
    const auto key = [ranks](const MoveBucket& b) { return std::tuple(b.parts.front().tensor, (b.to - b.from + ranks) % ranks, b.from); };
    std::stable_sort(all_.begin(), all_.end(), [&](const MoveBucket& a, const MoveBucket& b) { return key(a) < key(b); });
    return std::move(all_);
  }

 private:
  using Key = std::tuple<int, int, DType, Index>;  // sender, receiver, dtype, number of the weight if it is alone
  const MovePlan& plan_;
  Index bucket_bytes_;
  std::map<Key, std::size_t> open_;  // index of the last bucket
  std::vector<MoveBucket> all_;
};

}  // namespace

std::vector<MoveBucket> buckets_of(const MovePlan& plan, Index bucket_bytes) {
  MessageList messages(plan, bucket_bytes);
  int ranks = 1;
  for (const std::vector<Move>* some : {&plan.kept, &plan.sent})
    for (const Move& move : *some)
      for (const int to : move.to) {
        messages.add(move, to);
        ranks = std::max({ranks, move.from + 1, to + 1});
      }
  return std::move(messages).ordered(ranks);
}

}  // namespace gyr
