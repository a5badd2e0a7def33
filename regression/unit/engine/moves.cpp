// SPDX-License-Identifier: BSD-3-Clause
// Plans that move weights from one layout to another: afterwards every rank holds its new shard, and nothing is sent that
// is not needed. Messages divide the plan without changing it.
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>

#include "regression/support/folder.hpp"
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

Mesh ranks(int first, int count) {
  Mesh mesh{std::vector<int>(std::size_t(count))};
  std::iota(mesh.ranks.begin(), mesh.ranks.end(), first);
  return mesh;
}

// The layers on a layout, whose ranks begin at `first`.
PlacedWeights placed(const std::vector<Index>& rows, const Layout& layout, int first = 0) {
  return {stack(rows, layout), layout, ranks(first, layout.ranks())};
}

constexpr int world = 10;  // ranks of the drawn meshes

using Holdings = std::vector<std::set<std::pair<std::size_t, Index>>>;  // (weight, element) by world rank

// Elements of the weights that each world rank holds.
Holdings holdings(const PlacedWeights& model) {
  Holdings all(world);
  for (int rank = 0; rank < model.layout.ranks(); ++rank)
    for (std::size_t w = 0; w < model.weights.size(); ++w)
      for (const Held& held : stored_at(model.weights[w], model.layout, model.layout.position_of(rank)))
        for (Index i = 0; i < held.box.count[0]; ++i) all[std::size_t(model.mesh.ranks[std::size_t(rank)])].emplace(w, held.box.first[0] + i);
  return all;
}

Index sent(const MovePlan& plan) {
  Index sum = 0;
  for (const Move& move : plan.sent) sum += move.elements_sent();
  return sum;
}

void expect_moved(const PlacedWeights& from, const PlacedWeights& to, int ranks_per_node) {
  const Holdings old = holdings(from), wanted = holdings(to);
  Holdings now = old;
  const MovePlan plan = moves(from, to, ranks_per_node);
  for (const Move& move : plan.sent) {
    ASSERT_TRUE(std::is_sorted(move.to.begin(), move.to.end()));
    for (Index i = 0; i < move.box.count[0]; ++i) {
      const std::pair element(move.tensor, move.box.first[0] + i);
      ASSERT_TRUE(old[move.from].contains(element)) << "rank " << move.from << " sends an element that it does not hold";
      for (const int rank : move.to) {
        ASSERT_TRUE(now[rank].insert(element).second) << "rank " << rank << " receives an element that it already holds";
        const auto near = [&](int other) { return other / ranks_per_node == rank / ranks_per_node && old[other].contains(element); };
        bool any = false;
        for (int other = 0; other < world; ++other) any = any || near(other);
        ASSERT_EQ(near(move.from), any) << "rank " << rank << " receives from another node what a rank of its own node holds";
      }
    }
  }
  Index kept = 0;
  for (const Move& move : plan.kept) kept += elements(move.box.count);
  for (int rank = 0; rank < world; ++rank) {
    ASSERT_TRUE(std::includes(now[rank].begin(), now[rank].end(), wanted[rank].begin(), wanted[rank].end()))
        << "rank " << rank << " lacks an element of its new shard";
    for (const auto& element : now[rank])
      ASSERT_TRUE(old[rank].contains(element) || wanted[rank].contains(element)) << "rank " << rank << " receives an element that it does not need";
    for (const auto& element : wanted[rank]) kept -= old[rank].contains(element);
  }
  ASSERT_EQ(kept, 0) << "elements that ranks copy from their own memory";
}

// Elements sent in examples, as (tensor, pipeline, data) before and after, counted by hand independently. The first and
// the last rank of each model follow from its first one. The axis order decides which ranks are neighbours, but on full
// meshes not how much is sent.
TEST(moves, traffic_matches_known_examples) {
  struct Example {
    int before[3], after[3];
    Index sent;
    int first_before = 0, first_after = 0;
  };
  const Example examples[] = {{{4, 2, 1}, {1, 1, 8}, 784}, {{2, 2, 2}, {4, 1, 2}, 168},      {{1, 4, 2}, {2, 2, 2}, 112},
                              {{4, 1, 2}, {1, 4, 2}, 168}, {{2, 2, 2}, {4, 1, 1}, 84},       {{4, 1, 1}, {1, 1, 4}, 448, 0, 4},
                              {{2, 2, 1}, {1, 1, 8}, 784}, {{1, 4, 2}, {2, 1, 1}, 84, 0, 2}, {{2, 2, 2}, {2, 2, 2}, 0}};
  const std::vector<Index> rows{8, 8, 4, 4, 4};
  for (const Example& e : examples)
    for (const Axis outermost : {Axis::data, Axis::pipeline}) {
      const std::vector<Axis> order{outermost, outermost == Axis::data ? Axis::pipeline : Axis::data, Axis::tensor};
      const Layout before = layout_of(e.before[0], e.before[1], e.before[2], order), after = layout_of(e.after[0], e.after[1], e.after[2], order);
      if (outermost == Axis::pipeline && before.ranks() != after.ranks()) continue;
      EXPECT_EQ(sent(moves(placed(rows, before, e.first_before), placed(rows, after, e.first_after), 8)), e.sent)
          << before.text() << " to " << after.text();
    }
}

TEST(moves, none_between_equal_layouts) {
  const PlacedWeights model = placed({8, 4}, layout_of(2, 2, 2));
  EXPECT_TRUE(moves(model, model, 4).sent.empty());
}

// A model on random ranks of the world, in a random layout, perhaps with ZeRO-3.
PlacedWeights drawn(const std::vector<Index>& rows, std::mt19937_64& random) {
  const int count = 1 << (random() % 4);
  int pipeline = 1, tensor = 1;
  while (pipeline < 4 && pipeline * 2 <= count && random() % 2) pipeline *= 2;
  while (tensor * pipeline * 2 <= count && random() % 2) tensor *= 2;
  std::vector<Axis> order{Axis::data, Axis::pipeline, Axis::tensor};
  std::shuffle(order.begin(), order.end(), random);
  Layout layout = layout_of(tensor, pipeline, count / pipeline / tensor, order);
  layout.permutation = ranks(0, count).ranks;
  std::shuffle(layout.permutation.begin(), layout.permutation.end(), random);
  if (random() % 2) layout.shard = Shard::weights;
  PlacedWeights model{stack(rows, layout), layout, ranks(0, world)};
  std::shuffle(model.mesh.ranks.begin(), model.mesh.ranks.end(), random);
  model.mesh.ranks.resize(std::size_t(count));
  std::sort(model.mesh.ranks.begin(), model.mesh.ranks.end());
  const int parts = layout.size(token_axes);
  Index offset = Index(random() % 8);
  for (PlacedTensor& w : model.weights) w.flat_shard = {offset, 0, parts}, offset += w.weight.shape[0] / tensor;
  for (PlacedTensor& w : model.weights) w.flat_shard.extent = (offset + parts - 1) / parts * parts;
  return model;
}

TEST(moves, deliver_exactly_the_missing_elements_to_each_rank) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(fmt::format("trial {}", trial));
    const PlacedWeights from = drawn({8, 2, 16}, random), to = drawn({8, 2, 16}, random);
    expect_moved(from, to, 1 << (random() % 4));
    if (HasFatalFailure()) return;
  }
}

// A tied weight is stored on two stages, which ZeRO-3 shards differently. Receivers get each element once.
TEST(moves, tied_weight_is_sent_once) {
  std::mt19937_64 random(8);
  for (int trial = 0; trial < 50; ++trial) {
    SCOPED_TRACE(fmt::format("trial {}", trial));
    PlacedWeights from = drawn({16}, random);
    const Layout one = layout_of(1, 1, 1);
    const PlacedWeights to{{stack({16}, one).front()}, one, ranks(int(random() % world), 1)};
    PlacedTensor first = from.weights.front(), last = from.weights.back();
    last.weight = first.weight, last.tied = last.stage != first.stage;
    from.weights = last.tied ? std::vector{first, last} : std::vector{first};
    std::set<Index> stored, sent;
    for (const auto& elements : holdings(from))
      for (const auto& [weight, element] : elements) stored.insert(element);
    ASSERT_EQ(Index(stored.size()), 16);
    const MovePlan plan = moves(from, to, 4);
    for (const auto* some : {&plan.sent, &plan.kept})
      for (const Move& move : *some)
        for (Index i = 0; i < move.box.count[0]; ++i) ASSERT_TRUE(sent.insert(move.box.first[0] + i).second);
    ASSERT_EQ(Index(sent.size()), 16);
  }
}

// Mixed precision: a bf16 weight is copied to bf16. Other dtypes get the fp32 master weight, which ZeRO-1 shards.
TEST(moves, bytes_and_content_follow_precision_of_receiver) {
  Layout four = layout_of(1, 1, 4), other = layout_of(1, 1, 1);
  four.shard = Shard::optimizer;
  PlacedWeights from = placed({8}, four), to = placed({8}, other, 5);
  for (PlacedTensor& w : from.weights) w.dtype = DType::bf16, w.flat_shard = {0, 8, 4};
  from.weights[3].trained = false, from.masters = true;
  for (const DType dtype : {DType::bf16, DType::f32, DType::f64}) {
    for (PlacedTensor& w : to.weights) w.dtype = dtype;
    const MovePlan plan = moves(from, to, 8);
    const Content of_trained = dtype == DType::bf16 ? Content::weight : Content::master;
    EXPECT_TRUE(plan.contents == (std::vector{of_trained, of_trained, of_trained, Content::weight}));
    Index sum = 0;
    for (const auto& [pair, bytes] : plan.bytes()) sum += bytes;
    EXPECT_EQ(sum, layers * 8 * size_of(dtype));
    EXPECT_EQ(plan.bytes().size(), 4u);  // each rank sends a quarter
  }
}

// Each half of every weight has four holders on the node, which must send equally much.
TEST(moves, sends_are_balanced_over_the_holders) {
  PlacedWeights from{{}, layout_of(2, 1, 4), ranks(0, 8)}, to{{}, layout_of(1, 1, 8), ranks(0, 8)};
  for (int w = 0; w < 64; ++w) {
    from.weights.push_back({{fmt::format("w{}", w), {16}, by_rows({{16, 2}}), zeros()}, 0});
    to.weights.push_back({{fmt::format("w{}", w), {16}, replicated(), zeros()}, 0});
  }
  std::vector<Index> by(8);
  for (const Move& move : moves(from, to, 8).sent) by[move.from] += move.elements_sent();
  EXPECT_EQ(by, std::vector<Index>(8, 64 * 8));
}

TEST(moves, text_lists_bytes_of_each_pair) {
  const MovePlan plan = moves(placed({8}, layout_of(2, 1, 1)), placed({8}, layout_of(1, 1, 2), 1), 8);
  EXPECT_EQ(plan.text(),
            "weights move from 1 data x 1 pipeline x 2 tensor on ranks 0-1 to 2 data x 1 pipeline x 1 tensor on ranks 1-2: 192 bytes are sent, 64 "
            "bytes are on their ranks already\n"
            "  rank 0 to rank 1: 64 bytes\n  rank 0 to rank 2: 64 bytes\n  rank 1 to rank 2: 64 bytes\n");
}

TEST(moves, other_models_and_wrong_meshes_are_refused) {
  const PlacedWeights model = placed({8}, layout_of(2, 1, 1)), wider = placed({16}, layout_of(2, 1, 1));
  PlacedWeights shorter = model, few = model, twice = model;
  shorter.weights.pop_back(), few.mesh.ranks.pop_back(), twice.mesh.ranks = {3, 3};
  for (const PlacedWeights& other : {wider, shorter}) {
    const Error error = error_of([&] { moves(model, other, 8); });
    EXPECT_EQ(error.code, Exit::config);
    EXPECT_NE(std::string(error.what()).find("move weights only between models of one configuration"), std::string::npos) << error.what();
  }
  EXPECT_EQ(std::string(error_of([&] { moves(few, model, 8); }).what()),
            "ranks 0 are 1 ranks, but the layout 1 data x 1 pipeline x 2 tensor needs 2; list one rank for each position of the layout");
  EXPECT_EQ(std::string(error_of([&] { moves(model, twice, 8); }).what()),
            "ranks 3,3 are not ascending; list each rank of the model once, in ascending order");
}

// Elements that each pair of ranks exchanges, as (weight, element).
using Exchanged = std::map<std::pair<int, int>, std::set<std::pair<std::size_t, Index>>>;
void add(Exchanged& all, int from, int to, std::size_t tensor, const Box& box) {
  for (Index i = 0; i < box.count[0]; ++i) ASSERT_TRUE(all[std::pair(from, to)].emplace(tensor, box.first[0] + i).second);
}

TEST(moves, messages_divide_a_plan_within_their_size) {
  std::mt19937_64 random(9);
  for (int trial = 0; trial < 100; ++trial) {
    PlacedWeights from = drawn({8, 2, 16}, random), to = drawn({8, 2, 16}, random);
    for (PlacedTensor& w : to.weights) w.dtype = random() % 2 ? DType::f32 : DType::bf16, w.in_int8 = random() % 4 == 0;
    const MovePlan plan = moves(from, to, 4);
    const Index most = 1 + Index(random() % 40);
    Exchanged planned, packed;
    for (const auto* some : {&plan.sent, &plan.kept})
      for (const Move& move : *some)
        for (const int rank : move.to) add(planned, move.from, rank, move.tensor, move.box);
    for (const MoveBucket& bucket : buckets_of(plan, most)) {
      Index count = 0;
      std::set<std::size_t> alone;
      for (const MoveBucket::Part& part : bucket.parts) {
        const PlacedTensor& weight = to.weights[part.tensor];
        add(packed, bucket.from, bucket.to, part.tensor, part.box);
        count += elements(part.box.count);
        alone.insert(weight.in_int8 ? part.tensor : to.weights.size());
        ASSERT_EQ(bucket.dtype, weight.dtype);
      }
      ASSERT_EQ(bucket.elements, count);
      ASSERT_LE(count, std::max<Index>(1, most / size_of(bucket.dtype)));
      ASSERT_EQ(alone.size(), 1u) << "a weight in int8 shares a message";
    }
    ASSERT_EQ(packed, planned);
  }
}

}  // namespace
}  // namespace gyr::testing::moves_suite
