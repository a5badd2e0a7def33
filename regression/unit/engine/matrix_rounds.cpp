// SPDX-License-Identifier: BSD-3-Clause
// Exchanges that give whole matrices to their owners, on drawn layouts: an owner gets every element of its matrix once,
// every holder gets back each element that it updates, and no rank is sent what it has.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "regression/support/seed.hpp"
#include "src/parallel/matrix_rounds.hpp"

namespace gyr::testing::matrix_rounds_suite {
namespace {

Index any_of(std::mt19937& random, std::initializer_list<Index> values) { return values.begin()[random() % values.size()]; }

struct Case {
  Layout layout;
  std::vector<PlacedTensor> weights;
  std::vector<WholeMatrix> matrices;
};

// Weights whose units fit `tensor` ranks, or are fewer, or not sharded; with ZeRO in one flat run per rank.
Case drawn(std::mt19937& random) {
  const int tensor = int(any_of(random, {1, 2, 4})), data = int(any_of(random, {1, 2, 3})), context = int(any_of(random, {1, 2}));
  Case c{grid_layout(data, 1, tensor, std::vector<Span>(1), {}, {}, context), {}, {}};
  c.layout.shard = random() % 2 ? Shard::optimizer : Shard::none;
  const int replicas = c.layout.zero_shard() == Shard::none ? 1 : data * context;
  Index offset = 0;
  for (int w = 0; w < 1 + int(random() % 4); ++w) {
    const Index unit = any_of(random, {1, 3, 4}), units = any_of(random, {2, 4, 8}), other = any_of(random, {1, 5, 12});
    const Run run{unit * units, units, random() % 2 == 0}, shared{4, 4};
    Weight weight{fmt::format("w{}", w), {run.extent + 4, other}, by_rows({run, shared}), zeros()};
    if (random() % 3 == 0) weight.shape = {other, run.extent}, weight.shardings = by_columns({run});
    if (random() % 4 == 0) weight.shardings = replicated();
    c.weights.push_back({weight, 0});
    c.weights.back().flat_shard = {offset, 0, replicas};
    offset += elements(place(weight, c.layout.coordinates(0, weight_axes)).shape);
    const Index half = weight.shape[0] / 2;
    if (half > 0) c.matrices.push_back({std::size_t(w), {{0, 0}, {half, weight.shape[1]}}, double(random() % 5)});
    c.matrices.push_back({std::size_t(w), {{half, 0}, {weight.shape[0] - half, weight.shape[1]}}, double(random() % 5)});
  }
  for (PlacedTensor& w : c.weights) w.flat_shard.extent = (offset + replicas - 1) / replicas * replicas;
  return c;
}

using Elements = std::map<std::pair<Index, Index>, Index>;  // place in the matrix: place in the shard

Elements elements_of(const std::vector<MatrixPart>& parts, std::size_t matrix) {
  Elements all;
  for (const MatrixPart& p : parts)
    for (Index i = 0; p.matrix == matrix && i < p.rows * p.columns; ++i) {
      const Index r = i / p.columns, column = i % p.columns;
      EXPECT_TRUE(all.emplace(std::pair(p.row + r, p.column + column), p.first + r * p.stride + column).second) << "an element is there twice";
    }
  return all;
}

Elements updated_by(const Case& c, std::size_t matrix, int position) {
  const WholeMatrix& m = c.matrices[matrix];
  const PlacedTensor& w = c.weights[m.weight];
  Elements all;
  const Index stride = place(w.weight, c.layout.coordinates(position, weight_axes)).shape[1];
  for (const Held& held : c.layout.zero_shard() == Shard::none ? held_at(w, c.layout, position) : kept_at(w, c.layout, position))
    for (Index r = 0; r < held.box.count[0]; ++r)
      for (Index column = 0; column < held.box.count[1]; ++column) {
        const Index row = held.box.first[0] + r - m.box.first[0], at = held.box.first[1] + column - m.box.first[1];
        if (row >= 0 && row < m.box.count[0] && at >= 0 && at < m.box.count[1])
          all[{row, at}] = (held.local[0] + r) * stride + held.local[1] + column;
      }
  return all;
}

// Parts in the buffer of one exchange between two ranks, in its order.
std::vector<MatrixPart> between(const std::vector<Index>& counts, const std::vector<MatrixPart>& parts, int rank) {
  Index first = 0;
  for (int r = 0; r < rank; ++r) first += counts[std::size_t(r)];
  std::vector<MatrixPart> some;
  for (const MatrixPart& p : parts)
    if (p.at >= first && p.at < first + counts[std::size_t(rank)]) some.push_back(p);
  return some;
}

void expect_same_order(const std::vector<MatrixPart>& sent, const std::vector<MatrixPart>& received) {
  ASSERT_EQ(sent.size(), received.size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const auto key = [](const MatrixPart& p) { return std::tuple(p.matrix, p.rows, p.columns, p.row, p.column); };
    EXPECT_EQ(key(sent[i]), key(received[i]));
  }
}

void check(const Case& c, Index limit, bool on_all_ranks) {
  std::vector<std::vector<MatrixRound>> of_rank;
  for (int rank = 0; rank < c.layout.ranks(); ++rank)
    of_rank.push_back(matrix_rounds(c.weights, c.matrices, c.layout, HeldBy::all, rank, limit, on_all_ranks));
  const LargestRound largest = largest_round(c.weights, c.matrices, c.layout, HeldBy::all, 0, limit, on_all_ranks);
  for (const auto& rounds : of_rank)
    for (const MatrixRound& round : rounds) {
      EXPECT_LE(std::max(round.there.sent_size(), round.back.received_size()), largest.parts);
      EXPECT_LE(std::max(round.there.received_size(), round.back.sent_size()), largest.whole);
    }
  std::vector<int> transformed(c.matrices.size(), 0);
  for (std::size_t round = 0; round < of_rank[0].size(); ++round)
    for (int rank = 0; rank < c.layout.ranks(); ++rank) {
      const MatrixRound& mine = of_rank[std::size_t(rank)][round];
      ASSERT_LE(mine.mine.size(), 1u);
      for (const std::size_t m : mine.mine) {
        ++transformed[m];
        Elements whole = elements_of(mine.there.in, m);
        const Elements held = elements_of(mine.held, m);
        EXPECT_EQ(held, updated_by(c, m, rank));
        for (const auto& element : held) EXPECT_TRUE(whole.insert(element).second) << "an owner is sent what it has";
        EXPECT_EQ(Index(whole.size()), elements(c.matrices[m].box.count));
      }
      for (int other = 0; other < c.layout.ranks(); ++other) {
        const MatrixRound& theirs = of_rank[std::size_t(other)][round];
        expect_same_order(between(mine.there.sent, mine.there.out, other), between(theirs.there.received, theirs.there.in, rank));
        if (on_all_ranks) continue;
        expect_same_order(between(mine.back.sent, mine.back.out, other), between(theirs.back.received, theirs.back.in, rank));
        for (const std::size_t m : theirs.mine)
          if (other != rank) {
            EXPECT_EQ(elements_of(mine.back.in, m), updated_by(c, m, rank));
          }
      }
    }
  for (const int times : transformed) EXPECT_EQ(times, on_all_ranks ? c.layout.ranks() : 1);
}

TEST(matrix_rounds, owners_and_holders_get_every_element_once) {
  std::mt19937 random(seed_of_run());
  for (int i = 0; i < 300; ++i) {
    const Case c = drawn(random);
    SCOPED_TRACE(fmt::format("case {}: {}", i, c.layout.text()));
    check(c, any_of(random, {1, 50, 100000}), random() % 3 == 0);
  }
}

TEST(matrix_rounds, owners_share_the_cost) {
  std::mt19937 random(seed_of_run());
  for (int i = 0; i < 200; ++i) {
    const int ranks = 1 + int(random() % 9);
    std::vector<WholeMatrix> matrices;
    double all = 0, most = 0;
    for (std::size_t m = 0; m < 1 + random() % 60; ++m) {
      matrices.push_back({m, {{0, 0}, {1 + Index(random() % 9), 3}}, double(1 + random() % 20)});
      all += matrices.back().cost, most = std::max(most, matrices.back().cost);
    }
    const Index limit = any_of(random, {1, 60, 100000});
    std::vector<double> load(std::size_t(ranks), 0);
    for (const auto& round : owner_rounds(matrices, ranks, limit)) {
      Index size = 0;
      std::vector<bool> owns(std::size_t(ranks), false);
      for (const OwnedMatrix& each : round) {
        EXPECT_FALSE(owns[std::size_t(each.owner)]);
        owns[std::size_t(each.owner)] = true;
        load[std::size_t(each.owner)] += matrices[each.matrix].cost, size += elements(matrices[each.matrix].box.count);
      }
      EXPECT_TRUE(round.size() == 1 || size <= limit);
    }
    EXPECT_LE(*std::max_element(load.begin(), load.end()), all / ranks + most);
  }
}

}  // namespace
}  // namespace gyr::testing::matrix_rounds_suite
