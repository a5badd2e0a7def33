// SPDX-License-Identifier: BSD-3-Clause
// Moving weights from one layout to another: afterwards every rank holds its new shard, and nothing is sent that is not
// needed.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "src/parallel/moves.hpp"

namespace gyr::testing::moves_suite {
namespace {

constexpr int layers = 4;

// Four equal layers. rows: number of rows (one element each) of every weight of a layer, sharded over the tensor axis.
std::vector<PlacedTensor> stack(const std::vector<Index>& rows, const Layout& layout) {
  std::vector<PlacedTensor> weights;
  for (int layer = 0; layer < layers; ++layer)
    for (const Index n : rows) {
      const int stage = layer * layout.size(Axis::pipeline) / layers;
      weights.push_back({{fmt::format("layers.{}.{}", layer, weights.size()), {n}, by_rows({{n, n}}), zeros()}, stage});
    }
  return weights;
}

Layout layout_of(int tensor, int pipeline, int data, const std::vector<Axis>& order = {}) {
  return grid_layout(data, pipeline, tensor, std::vector<Span>(std::size_t(pipeline)), {}, order);
}

// Elements of the weights that a rank holds, as (weight, element).
std::set<std::pair<std::size_t, Index>> holdings(const std::vector<PlacedTensor>& weights, const Layout& layout, int rank) {
  std::set<std::pair<std::size_t, Index>> all;
  for (std::size_t w = 0; w < weights.size(); ++w)
    for (const Held& held : held_at(weights[w], layout, layout.position_of(rank)))
      for (Index i = 0; i < held.box.count[0]; ++i) all.emplace(w, held.box.first[0] + i);
  return all;
}

Index sent(const std::vector<Move>& all) {
  Index sum = 0;
  for (const Move& move : all) sum += move.elements_sent();
  return sum;
}

void expect_moved(const std::vector<Index>& rows, const Layout& before, const Layout& after, int ranks_per_node) {
  const std::vector<PlacedTensor> from = stack(rows, before), to = stack(rows, after);
  std::vector<std::set<std::pair<std::size_t, Index>>> old, now;
  for (int rank = 0; rank < before.ranks(); ++rank) old.push_back(holdings(from, before, rank)), now.push_back(old.back());
  for (const Move& move : moves(from, before, to, after, ranks_per_node)) {
    ASSERT_TRUE(std::is_sorted(move.to.begin(), move.to.end()));
    for (Index i = 0; i < move.box.count[0]; ++i) {
      const std::pair element(move.tensor, move.box.first[0] + i);
      ASSERT_TRUE(old[move.from].contains(element)) << "rank " << move.from << " sends an element that it does not hold";
      for (const int rank : move.to) {
        ASSERT_TRUE(now[rank].insert(element).second) << "rank " << rank << " receives an element that it already holds";
        const auto near = [&](int other) { return other / ranks_per_node == rank / ranks_per_node && old[other].contains(element); };
        bool any = false;
        for (int other = 0; other < before.ranks(); ++other) any = any || near(other);
        ASSERT_EQ(near(move.from), any) << "rank " << rank << " receives from another node what a rank of its own node holds";
      }
    }
  }
  for (int rank = 0; rank < before.ranks(); ++rank) {
    const auto wanted = holdings(to, after, rank);
    ASSERT_TRUE(std::includes(now[rank].begin(), now[rank].end(), wanted.begin(), wanted.end()))
        << "rank " << rank << " lacks an element of its new shard";
    for (const auto& element : now[rank])
      ASSERT_TRUE(old[rank].contains(element) || wanted.contains(element)) << "rank " << rank << " receives an element that it does not need";
  }
}

// Elements sent in examples on eight ranks, as (tensor, pipeline, data) before and after, counted by hand
// independently. The axis order decides which ranks are neighbours, but here not how much is sent.
TEST(moves, traffic_matches_known_examples) {
  struct Example {
    int before[3], after[3];
    Index sent;
  };
  const Example examples[] = {{{4, 2, 1}, {1, 1, 8}, 784}, {{2, 2, 2}, {4, 1, 2}, 168}, {{1, 4, 2}, {2, 2, 2}, 112}, {{4, 1, 2}, {1, 4, 2}, 168}};
  const std::vector<Index> rows{8, 8, 4, 4, 4};
  for (const Example& e : examples)
    for (const Axis outermost : {Axis::pipeline, Axis::data}) {
      const std::vector<Axis> order{outermost, outermost == Axis::data ? Axis::pipeline : Axis::data, Axis::tensor};
      const Layout before = layout_of(e.before[0], e.before[1], e.before[2], order), after = layout_of(e.after[0], e.after[1], e.after[2], order);
      EXPECT_EQ(sent(moves(stack(rows, before), before, stack(rows, after), after, 8)), e.sent) << before.text() << " to " << after.text();
    }
}

TEST(moves, none_between_equal_layouts) {
  const Layout layout = layout_of(2, 2, 2);
  const auto weights = stack({8, 4}, layout);
  EXPECT_TRUE(moves(weights, layout, weights, layout, 4).empty());
}

TEST(moves, deliver_exactly_the_missing_elements_to_each_rank) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(fmt::format("trial {}", trial));
    const int ranks = 1 << (random() % 4);
    const auto drawn = [&] {
      int pipeline = 1, tensor = 1;
      while (pipeline < 4 && pipeline * 2 <= ranks && random() % 2) pipeline *= 2;
      while (tensor * pipeline * 2 <= ranks && random() % 2) tensor *= 2;
      std::vector<Axis> order{Axis::data, Axis::pipeline, Axis::tensor};
      std::shuffle(order.begin(), order.end(), random);
      Layout layout = layout_of(tensor, pipeline, ranks / pipeline / tensor, order);
      layout.permutation.resize(std::size_t(ranks));
      for (int i = 0; i < ranks; ++i) layout.permutation[std::size_t(i)] = i;
      std::shuffle(layout.permutation.begin(), layout.permutation.end(), random);
      return layout;
    };
    expect_moved({8, 2, 16}, drawn(), drawn(), 1 << (random() % 4));
    if (HasFatalFailure()) return;
  }
}

// Each half of every weight has four holders on the node, which must send equally much.
TEST(moves, sends_are_balanced_over_the_holders) {
  const Layout before = layout_of(1, 1, 8), after = layout_of(1, 1, 8);
  std::vector<PlacedTensor> from, to;
  for (int w = 0; w < 64; ++w) {
    from.push_back({{fmt::format("w{}", w), {16}, by_rows({{16, 2}}), zeros()}, 0});
    to.push_back({{fmt::format("w{}", w), {16}, replicated(), zeros()}, 0});
  }
  const Layout halves = layout_of(2, 1, 4);
  std::vector<Index> by(8);
  for (const Move& move : moves(from, halves, to, after, 8)) by[move.from] += move.elements_sent();
  EXPECT_EQ(by, std::vector<Index>(8, 64 * 8));
}

}  // namespace
}  // namespace gyr::testing::moves_suite
