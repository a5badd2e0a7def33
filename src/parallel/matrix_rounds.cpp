// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/matrix_rounds.hpp"

#include <algorithm>
#include <numeric>

namespace gyr {

namespace {

Index total(const std::vector<Index>& counts) { return std::accumulate(counts.begin(), counts.end(), Index(0)); }

class Rounds {
 public:
  Rounds(const std::vector<PlacedTensor>& weights, const std::vector<WholeMatrix>& matrices, const Layout& layout, HeldBy by, int position)
      : weights_(weights), matrices_(matrices), layout_(layout), holders_(layout.holders(by, position)),
        me_(int(std::find(holders_.begin(), holders_.end(), position) - holders_.begin())), zero_(layout.zero_shard() != Shard::none) {}

  int ranks() const { return int(holders_.size()); }

  // Parts go from `owners` of these matrices back to all holders if `returns`.
  MatrixRound round(const std::vector<OwnedMatrix>& owned, bool on_all_ranks) const {
    MatrixRound round;
    for (const OwnedMatrix& each : owned)
      if (on_all_ranks || each.owner == me_) {
        round.mine.push_back(each.matrix);
        for (const Part& part : parts(each.matrix, me_)) round.held.push_back(part.moved);
      }
    round.there = exchange(owned, on_all_ranks, &Rounds::sends);
    if (!on_all_ranks) round.back = turned(exchange(owned, false, &Rounds::keeps));
    return round;
  }

  LargestRound largest(const std::vector<std::vector<OwnedMatrix>>& rounds, bool on_all_ranks) const {
    LargestRound largest;
    for (const auto& round : rounds) {
      Index parts = 0;
      for (const OwnedMatrix& each : round) {
        const WholeMatrix& m = matrices_[each.matrix];
        const Coordinate replicas = layout_.replicas(bool(weights_[m.weight].weight.expert), holders_[0]);
        Index most = 0, all = 0;  // elements of tensor-parallel shards, whatever part of them ZeRO gives to a rank
        for (int rank = 0; rank < ranks(); ++rank)
          if (replica(each.matrix, rank) == 0) most = std::max(most, held(m, rank)), all += held(m, rank);
        parts += most * (on_all_ranks ? ranks() - 1 : 1);
        const Index returned = on_all_ranks ? 0 : all * (zero_ ? 1 : replicas.ranks);
        largest.whole = std::max({largest.whole, elements(m.box.count), returned});
      }
      largest.parts = std::max(largest.parts, parts);
    }
    return largest;
  }

 private:
  // Elements of a matrix in the tensor-parallel shard of a rank.
  Index held(const WholeMatrix& m, int rank) const {
    Index sum = 0;
    for (const Held& box : held_at(weights_[m.weight], layout_, holders_[std::size_t(rank)]))
      if (const auto both = common(box.box, m.box)) sum += elements(both->count);
    return sum;
  }

  // Part of a matrix on a rank, and if it is the first of the tensor-parallel ranks that hold it.
  struct Part {
    MatrixPart moved;
    bool first_copy;
  };

  // Boxes of the weight that a rank updates.
  std::vector<Held> updated(std::size_t weight, int rank) const {
    const PlacedTensor& w = weights_[weight];
    return zero_ ? kept_at(w, layout_, holders_[std::size_t(rank)]) : held_at(w, layout_, holders_[std::size_t(rank)]);
  }
  std::vector<Part> parts(std::size_t matrix, int rank) const {
    const WholeMatrix& m = matrices_[matrix];
    const Weight& w = weights_[m.weight].weight;
    const Index stride = place(w, layout_.coordinates(holders_[std::size_t(rank)], weight_axes)).shape[1];
    std::vector<Part> all;
    for (const Held& held : updated(m.weight, rank)) {
      const auto both = common(held.box, m.box);
      if (!both) continue;
      const Box local = moved(*both, held.box.first, held.local);
      all.push_back({{matrix, both->count[0], both->count[1], both->first[0] - m.box.first[0], both->first[1] - m.box.first[1],
                      local.first[0] * stride + local.first[1], stride},
                     held.copy(weight_axes).rank == 0});
    }
    return all;
  }
  int replica(std::size_t matrix, int rank) const {
    return layout_.replicas(bool(weights_[matrices_[matrix].weight].weight.expert), holders_[std::size_t(rank)]).rank;
  }

  // Parts that a rank sends to an owner: those of which it has the first copy, in the owner's replica, and that the owner
  // does not have.
  std::vector<Part> sends(std::size_t matrix, int rank, int owner) const {
    if (!zero_ && replica(matrix, rank) != replica(matrix, owner)) return {};
    std::vector<Part> some = parts(matrix, rank);
    const std::vector<Part> has = parts(matrix, owner);
    std::erase_if(some, [&](const Part& part) {
      return !part.first_copy || std::any_of(has.begin(), has.end(), [&](const Part& other) {
        return other.moved.row == part.moved.row && other.moved.column == part.moved.column;
      });
    });
    return some;
  }
  std::vector<Part> keeps(std::size_t matrix, int rank, int) const { return parts(matrix, rank); }

  // Exchange of `chosen` parts of other ranks with the ranks that transform their matrices.
  using Chosen = std::vector<Part> (Rounds::*)(std::size_t matrix, int rank, int owner) const;
  MatrixExchange exchange(const std::vector<OwnedMatrix>& owned, bool on_all_ranks, Chosen chosen) const {
    MatrixExchange all;
    const auto add = [](const std::vector<Part>& parts, std::vector<MatrixPart>& list, Index& at) {
      const Index before = at;
      for (const Part& part : parts) {
        list.push_back(part.moved);
        list.back().at = at, at += part.moved.rows * part.moved.columns;
      }
      return at - before;
    };
    Index sent = 0, received = 0;
    for (int rank = 0; rank < ranks(); ++rank) {
      Index to = 0, from = 0;
      for (const OwnedMatrix& each : owned) {
        if (rank == me_) continue;
        if (on_all_ranks || each.owner == rank) to += add((this->*chosen)(each.matrix, me_, rank), all.out, sent);
        if (on_all_ranks || each.owner == me_) from += add((this->*chosen)(each.matrix, rank, me_), all.in, received);
      }
      all.sent.push_back(to), all.received.push_back(from);
    }
    return all;
  }
  static MatrixExchange turned(MatrixExchange e) {
    std::swap(e.sent, e.received), std::swap(e.out, e.in);
    return e;
  }

  const std::vector<PlacedTensor>& weights_;
  const std::vector<WholeMatrix>& matrices_;
  const Layout& layout_;
  std::vector<int> holders_;
  int me_;
  bool zero_;
};

}  // namespace

Index MatrixExchange::sent_size() const { return total(sent); }
Index MatrixExchange::received_size() const { return total(received); }

std::vector<std::vector<OwnedMatrix>> owner_rounds(const std::vector<WholeMatrix>& matrices, int ranks, Index elements_limit) {
  std::vector<std::size_t> order(matrices.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return matrices[a].cost > matrices[b].cost; });
  std::vector<double> load(std::size_t(ranks), 0);
  std::vector<int> by_load(std::size_t(ranks), 0);
  std::iota(by_load.begin(), by_load.end(), 0);
  std::vector<std::vector<OwnedMatrix>> rounds;
  Index in_round = 0;
  for (const std::size_t m : order) {
    const Index size = elements(matrices[m].box.count);
    if (rounds.empty() || rounds.back().size() == std::size_t(ranks) || in_round + size > elements_limit) {
      std::stable_sort(by_load.begin(), by_load.end(),
                       [&](int a, int b) { return std::pair(load[std::size_t(a)], a) < std::pair(load[std::size_t(b)], b); });
      rounds.emplace_back();
      in_round = 0;
    }
    const int owner = by_load[rounds.back().size()];
    rounds.back().push_back({m, owner});
    load[std::size_t(owner)] += matrices[m].cost, in_round += size;
  }
  return rounds;
}

LargestRound largest_round(const std::vector<PlacedTensor>& weights, const std::vector<WholeMatrix>& matrices, const Layout& layout, HeldBy by,
                           int position, Index elements, bool on_all_ranks) {
  const Rounds rounds(weights, matrices, layout, by, position);
  return rounds.largest(owner_rounds(matrices, on_all_ranks ? 1 : rounds.ranks(), elements), on_all_ranks);
}

std::vector<MatrixRound> matrix_rounds(const std::vector<PlacedTensor>& weights, const std::vector<WholeMatrix>& matrices, const Layout& layout,
                                       HeldBy by, int position, Index elements, bool on_all_ranks) {
  const Rounds rounds(weights, matrices, layout, by, position);
  std::vector<MatrixRound> all;
  for (const auto& owned : owner_rounds(matrices, on_all_ranks ? 1 : rounds.ranks(), elements)) all.push_back(rounds.round(owned, on_all_ranks));
  return all;
}

}  // namespace gyr
