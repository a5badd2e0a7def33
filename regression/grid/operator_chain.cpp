// SPDX-License-Identifier: BSD-3-Clause
// Random graphs of linear layers, pointwise layers, norms, attention and scans are computed on several ranks, with the
// layout that is found for them. The results equal those of one rank, no unit is divided, and communicators count what
// the layout declares.
#include <numeric>
#include <set>

#include "regression/support/chain_executor.hpp"
#include "regression/support/closed_form.hpp"
#include "regression/support/grids.hpp"
#include "regression/support/random_chain.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::operator_chain_suite {
namespace {

constexpr int graphs = 200, most_ranks = 4;
constexpr Index rows = 12;  // divisible by every tested number of ranks

Reals all_drawn(const std::string& name, Index count) {
  Reals x(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i) x[i] = drawn(name, i);
  return x;
}

struct Graph {
  OperatorChain chain;
  Reals x, dy;
  std::string name;

  Graph(std::mt19937& random, int number) : name(fmt::format("graph {}", number)) {
    RandomChain draw(random);
    const int operators = int(draw.from(3, 12));
    chain = draw.chain(undivided(draw.from(2, 8)), operators);
    const Index width = chain.back().out.width;
    x = all_drawn(name + " x", rows * chain.front().in.width), dy = all_drawn(name + " dy", rows * width);
  }
};

struct Results {
  Reals y, dx;
  std::map<std::string, Reals> gradients;
};

std::optional<ChainLayout> layout_of(const Graph& g, const LayoutRules& rules, TensorState stream) {
  return lay_out(g.chain, rules, {&stream, 1}, {&stream, 1});
}

// Rules that refuse two thirds of all operator passages. The best layout then needs other transfers, and operators in
// states that it otherwise never uses.
LayoutRules with_refusals(LayoutRules rules, const Graph& g) {
  rules.allowed = [name = g.name](const Operator& op, const OperatorPassage& p) {
    return drawn(fmt::format("{} {} {} {}", name, op.name, int(p.in), int(p.out)), 0) < -1.0 / 3;
  };
  return rules;
}

Results single_rank_on(const Graph& g, Device& dev, double nudge = 0) {
  Communicator self("self", dry_transport(0, 1));
  ChainExecutor executor(self, dev, rows, nudge);
  const auto run = executor.run(g.chain, *layout_of(g, {}, TensorState::full), g.x);
  Results r{run.y, run.backward(g.dy), {}};
  r.gradients = executor.gradients();
  return r;
}

void expect_near(const Reals& found, const Reals& expected, const std::string& where) {
  ASSERT_EQ(found.size(), expected.size()) << where;
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    error = std::max(error, std::abs(found[i] - expected[i])), largest = std::max(largest, std::abs(expected[i]));
  EXPECT_LE(error, 1e-12 * std::max(largest, 1e-3)) << where;
}

// The shards of a weight must consist of complete units, such as heads.
void expect_undivided_units(const Graph& g, const ChainLayout& layout, int ranks, const std::string& where) {
  for_each_step(g.chain, layout, [&](const OperatorChain& chain, const LayoutStep& step) {
    if (step.op < 0) return;
    for (const OperatorWeight& w : chain[step.op].weights)
      for (const Sharding& sharding : w.shardings(step.split))
        for (int rank = 0; rank < ranks; ++rank) {
          Coordinates at;
          at[Axis::tensor] = {ranks, rank};
          for (const Held& held : place({w.name, w.shape, {sharding}, zeros()}, at).boxes) {
            Index first = held.box.first[sharding.dim];
            for (const gyr::Run& run : sharding.runs) {
              if (first < run.extent) {
                const Index unit = run.extent / run.units;
                EXPECT_TRUE(first % unit == 0 && held.box.count[sharding.dim] % unit == 0) << w.name << ", " << where;
                break;
              }
              first -= run.extent;
            }
          }
        }
  });
}

void expect_counted(const Graph& g, const ChainLayout& layout, const Communicator& ranks, const std::string& where) {
  std::map<Operation, Traffic> declared;
  for_each_step(g.chain, layout, [&](const OperatorChain&, const LayoutStep& step) {
    for (const auto* transfers : {&step.forward, &step.backward})
      for (const RowTransfer& t : *transfers)
        ++declared[t.operation].calls, declared[t.operation].bytes += Index(t.handed_over() * double(rows)) * Index(sizeof(double));
  });
  for (int op = 0; op < operations; ++op) EXPECT_EQ(ranks.traffic(Operation(op)), declared[Operation(op)]) << name_of(Operation(op)) << ", " << where;
}

// Counts of weights sharded by outputs, sharded by inputs and unsharded, and the kinds of moves that occurred.
struct Tally {
  Index outputs = 0, inputs = 0, unsplit = 0, transfers = 0;
  std::set<std::pair<TensorState, TensorState>> moved;
  void add(const Graph& g, const ChainLayout& layout) {
    for_each_step(g.chain, layout, [&](const OperatorChain& chain, const LayoutStep& step) {
      transfers += Index(step.forward.size() + step.backward.size());
      if (step.op < 0) moved.insert({step.in, step.out});
      if (step.op >= 0 && !chain[step.op].weights.empty())
        ++(step.split == WeightSplit::outputs ? outputs : step.split == WeightSplit::inputs ? inputs : unsplit);
    });
  }
};

void expect_same_on(const Graph& g, int size, TensorState stream, bool refusing, const Results& one, Device& dev, Tally& tally) {
  Grid* grid = grid_of(grid_layout(1, 1, size, {{0, 8}}));
  if (!grid) return;
  const std::string where = fmt::format("{} on {} ranks, stream {}{}", g.name, size, name_of(stream), refusing ? ", refusing" : "");
  const LayoutRules rules{.ranks = size, .narrow = sizeof(double), .wide = sizeof(double)};
  const auto found = layout_of(g, refusing ? with_refusals(rules, g) : rules, stream);
  ASSERT_TRUE(found || refusing) << where;
  if (!found) return;
  const ChainLayout& layout = *found;
  expect_undivided_units(g, layout, size, where);
  tally.add(g, layout);
  Communicator& ranks = grid->tensor().full();
  ChainExecutor executor(ranks, dev, rows);
  ranks.clear_traffic();
  const auto run = executor.run(g.chain, layout, executor.part(g.x, g.chain.front().in, stream));
  const Reals dx = run.backward(executor.part(g.dy, g.chain.back().out, stream));
  if (size > 1) expect_counted(g, layout, ranks, where);
  expect_near(run.y, executor.part(one.y, g.chain.back().out, stream), where + ", y");
  expect_near(dx, executor.part(one.dx, g.chain.front().in, stream), where + ", dx");
  for (const auto& [name, expected] : one.gradients) {
    Reals sum = executor.gradients().at(name);
    ranks.all_reduce(dev, Tensor1<double>(sum.data(), Index(sum.size())));
    expect_near(sum, expected, where + ", gradient of " + name);
  }
}

TEST(operator_chain, random_graphs_on_several_ranks_equal_one_rank) {
  std::mt19937 random(seed_of_run());
  Device dev(false, Index(1) << 22);
  Tally tally;
  for (int number = 0; number < graphs; ++number) {
    const Graph g(random, number);
    const Results one = single_rank_on(g, dev);
    for (int size = 1; size <= most_ranks; ++size)
      for (const bool refusing : {false, true})
        expect_same_on(g, size, (number + size) % 2 ? TensorState::rows : TensorState::full, refusing, one, dev, tally);
    if (::testing::Test::HasFailure()) break;
  }
  std::printf("weights sharded by outputs %td, by inputs %td, unsharded %td; collectives %td; %zu of %zu moves\n", tally.outputs, tally.inputs,
              tally.unsplit, tally.transfers, tally.moved.size(), moves().size());
  sync_ranks();
}

// The gradient on one rank must match central differences.
TEST(operator_chain, gradient_of_graph_matches_central_differences) {
  std::mt19937 random(seed_of_run());
  Device dev(false, Index(1) << 22);
  for (int number = 0; number < 40; ++number) {
    Graph g(random, number);
    const Results r = single_rank_on(g, dev);
    const Reals x = g.x;
    const auto loss = [&](double h) {
      for (std::size_t i = 0; i < x.size(); ++i) g.x[i] = x[i] + h * drawn(direction_of("x"), Index(i));
      const Reals y = single_rank_on(g, dev, h).y;
      return std::inner_product(y.begin(), y.end(), g.dy.begin(), 0.0);
    };
    double expected = 0;
    const auto along = [&](const std::string& name, const Reals& gradient) {
      for (std::size_t i = 0; i < gradient.size(); ++i) expected += gradient[i] * drawn(direction_of(name), Index(i));
    };
    along("x", r.dx);
    for (const auto& [name, gradient] : r.gradients) along(name, gradient);
    const double h = 1e-5, difference = (loss(h) - loss(-h)) / (2 * h);
    EXPECT_NEAR(difference, expected, 1e-6 * std::max(1.0, std::abs(expected))) << g.name;
  }
  sync_ranks();
}

}  // namespace
}  // namespace gyr::testing::operator_chain_suite
