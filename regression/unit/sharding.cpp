// SPDX-License-Identifier: BSD-3-Clause
// Laws of sharding weights over ranks: every element has exactly its replicas, what a rank holds tiles its shard, and
// initial values are those of one rank whatever the layout.
#include <numeric>

#include "modules/layer.hpp"
#include "regression/cases.hpp"
#include "regression/testing.hpp"

namespace gyr::testing {
namespace {

bool can_shard(const Run& run, int ranks) { return run.units == 0 || run.units % ranks == 0 || ranks % run.units == 0; }

// Replicas of a unit of the run that holds row `row`.
int expected_replicas(const Weight& w, Index row, int ranks) {
  for (const Run& run : w.sharding.runs) {
    if (row < run.extent) {
      if (run.units == 0 || run.units >= ranks) return 1;
      const int holders = int(ranks / run.units);
      return run.divisible ? holders / int(std::gcd(run.extent / run.units, holders)) : holders;
    }
    row -= run.extent;
  }
  return ranks;
}

void expect_sharded(const Weight& w, int ranks) {
  const Index whole = w.shape[w.sharding.dim];
  std::vector<std::vector<int>> replicas(whole);  // of each row, by rank
  for (int rank = 0; rank < ranks; ++rank) {
    const Shard held = shard(w, ranks, rank);
    std::vector<int> filled(held.shape[w.sharding.dim], 0);
    for (const Piece& piece : held.pieces)
      for (Index i = 0; i < piece.extent; ++i) {
        filled.at(piece.local + i) += 1;
        replicas.at(piece.global + i).push_back(piece.replica);
        EXPECT_EQ(piece.replicas, expected_replicas(w, piece.global + i, ranks));
      }
    const bool pads = !w.sharding.runs.empty() && w.sharding.runs[0].units == 0;
    for (const int times : filled) EXPECT_TRUE(times == 1 || (times == 0 && pads)) << "a local row stands for " << times << " rows";
    Shape whole_shape = held.shape;
    whole_shape[w.sharding.dim] = whole;
    EXPECT_EQ(whole_shape, w.shape);
    EXPECT_EQ(held.shape, shard(w, ranks, 0).shape) << "ranks hold different shapes";
  }
  for (Index row = 0; row < whole; ++row) {
    std::vector<int> numbered(expected_replicas(w, row, ranks));
    for (std::size_t i = 0; i < numbered.size(); ++i) numbered[i] = int(i);
    EXPECT_EQ(replicas[row], numbered) << "row " << row << " of " << whole << " on " << ranks << " ranks";
  }
}

TEST(sharding, gives_every_row_its_holders) {
  for (int ranks = 1; ranks <= 24; ++ranks)
    for (Index units = 0; units <= 48; ++units)
      for (const Index unit : {1, 5, 6})
        for (const bool divisible : {false, true}) {
          const gyr::Run run{units == 0 ? 37 * unit : units * unit, units, divisible};
          const Weight w{"w", {run.extent, 3}, by_rows({run}), zeros()};
          if (can_shard(run, ranks)) {
            expect_sharded(w, ranks);
          } else {
            EXPECT_THROW(shard(w, ranks, 0), Error) << units << " units on " << ranks << " ranks";
          }
        }
}

TEST(sharding, of_several_runs_keeps_their_order) {
  for (int ranks : {1, 2, 3, 4, 6, 8, 12}) {
    const std::vector<gyr::Run> runs{{48, 24}, {48, 24}, {10, ranks % 2 == 0 ? 2 : 1}, {10, ranks % 2 == 0 ? 2 : 1}, {24, 24}};
    expect_sharded({"rows", {140, 3}, by_rows(runs), zeros()}, ranks);
    expect_sharded({"columns", {3, 140}, by_columns(runs), zeros()}, ranks);
    expect_sharded({"everywhere", {7}, replicated(), zeros()}, ranks);
    Index behind = -1;
    for (const Piece& piece : shard({"rows", {140, 3}, by_rows(runs), zeros()}, ranks, 0).pieces) {
      EXPECT_GT(piece.global, behind);
      behind = piece.global + piece.extent - 1;
    }
  }
}

// Some rows may lie on no rank but the last: five rows on four ranks are two, two, one and none.
TEST(sharding, of_single_rows_leaves_the_last_ranks_less) {
  const Weight w{"w", {5, 2}, by_rows({{5, 0}}), zeros()};
  const Index extents[] = {2, 2, 1, 0};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(shard(w, 4, rank).pieces[0].extent, extents[rank]);
    EXPECT_EQ(shard(w, 4, rank).shape[0], 2);
  }
}

// Two heads of six channels on eight ranks: a head is cut into halves, because four ranks share it, and two ranks hold each half.
TEST(sharding, cuts_units_as_far_as_their_rows_divide) {
  const Weight w{"w", {12, 2}, by_rows({{12, 2, true}}), zeros()};
  for (int rank = 0; rank < 8; ++rank) {
    const Shard held = shard(w, 8, rank);
    EXPECT_EQ(held.shape[0], 3);
    EXPECT_EQ(held.pieces[0].global, 3 * (rank / 2));
    EXPECT_EQ(held.pieces[0].replicas, 2);
    EXPECT_EQ(held.pieces[0].replica, rank % 2);
  }
}

TEST(sharding, says_which_tensor_sizes_would_do) {
  try {
    shard({"model.layers.0.mamba.A_log", {6}, by_rows({{6, 6}}), zeros()}, 4, 0);
    FAIL() << "6 units were sharded over 4 ranks";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Exit::config);
    for (const char* part : {"A_log", "6 units", "4 tensor ranks"}) EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

// The initial weights of every rank of a layout, put together; each element is written by all its holders with the same
// bits.
template <class T>
std::map<std::string, std::vector<double>> drawn(const ModelConfig& model, const Layout& layout) {
  std::map<std::string, std::vector<double>> all;
  for (int position = 0; position < layout.ranks(); ++position) {
    Grid grid = Grid::dry_run(layout, position);
    Stage<T> stage(model, grid);
    Arena weights(Memory::weights, Index(1) << 24), none(Memory::gradients, 0);
    Device device(false, 0);
    stage.parameters().allocate(weights, none, Gradients::none);
    for (const auto& p : stage.parameters().all()) {
      initialise<T>(device, *p, 11);
      std::vector<double> mine(p->size());
      for (Index i = 0; i < p->size(); ++i)
        mine[i] = p->dtype() == dtype_of<T>() ? double(p->template vector<T>()(i)) : double(p->template vector<Acc<T>>()(i));
      auto& values = all.try_emplace(p->weight.name, p->weight.size(), NAN).first->second;
      stretches(*p, [&](Index logical, Index local, Index count, const Piece&) {
        for (Index i = 0; i < count; ++i) {
          double& value = values.at(logical + i);
          EXPECT_TRUE(std::isnan(value) || value == mine.at(local + i)) << p->weight.name << ": holders disagree at " << logical + i;
          value = mine.at(local + i);
        }
      });
    }
  }
  return all;
}

template <class T>
void expect_one_draw(const std::string& name) {
  const ModelConfig model = widened(named(name));
  const auto one = drawn<T>(model, grid_layout(1, 1, 1, {{0, 8}}));
  for (const int tensor : {2, 4, 8}) EXPECT_EQ(drawn<T>(model, grid_layout(1, 1, tensor, {{0, 8}})), one) << name << " tensor " << tensor;
  EXPECT_EQ(drawn<T>(model, grid_layout(2, 2, 2, {{0, 3}, {3, 8}})), one) << name;
  EXPECT_EQ(drawn<T>(model, grid_layout(1, 4, 1, {{0, 1}, {1, 2}, {2, 6}, {6, 8}})), one) << name;
}

TEST(sharding, does_not_change_initial_values) {
  for (const char* name : {"T2", "T5", "T6", "T7"}) expect_one_draw<double>(name), expect_one_draw<bf16>(name);
}

TEST(sharding, draws_weights_of_different_names_differently) {
  const auto all = drawn<double>(widened(named("T2")), grid_layout(1, 1, 1, {{0, 8}}));
  EXPECT_NE(all.at("model.layers.0.mamba.in_proj.weight"), all.at("model.layers.1.mamba.in_proj.weight"));
  EXPECT_NE(all.at("model.layers.0.feed_forward.gate_proj.weight"), all.at("model.layers.0.feed_forward.up_proj.weight"));
}

}  // namespace
}  // namespace gyr::testing
