// SPDX-License-Identifier: BSD-3-Clause
// Layouts: positions and coordinates agree, permutations are inverted, and layers are split optimally into pipeline
// stages.
#include "src/parallel/layout.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "kernels/base/error.hpp"
#include "kernels/device/random.hpp"
#include "regression/support/testing.hpp"

namespace gyr::layout_suite {
namespace {

// Cost of the most expensive stage.
double slowest(const std::vector<Span>& stages, const std::vector<double>& costs, double before, double after) {
  double most = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    double cost = (s == 0 ? before : 0) + (s + 1 == stages.size() ? after : 0);
    for (Index i = stages[s].first; i < stages[s].last; ++i) cost += costs[i];
    most = std::max(most, cost);
  }
  return most;
}

// The lowest such cost over all placements of stages - 1 boundaries between the layers.
double least(const std::vector<double>& costs, double before, double after, int stages) {
  const int layers = int(costs.size());
  double best = INFINITY;
  for (unsigned boundaries = 0; boundaries < 1u << (layers - 1); ++boundaries) {
    if (__builtin_popcount(boundaries) != stages - 1) continue;
    std::vector<Span> spans{{0, layers}};
    for (int i = 0; i + 1 < layers; ++i)
      if (boundaries >> i & 1) spans.back().last = i + 1, spans.push_back({i + 1, layers});
    best = std::min(best, slowest(spans, costs, before, after));
  }
  return best;
}

TEST(layout, stage_split_is_optimal_among_all_splits) {
  const Stream stream(1, "costs");
  Index drawn = 0;
  for (int layers = 1; layers <= 9; ++layers)
    for (int stages = 1; stages <= layers; ++stages)
      for (int trial = 0; trial < 6; ++trial) {
        std::vector<double> costs(layers);
        for (double& c : costs) c = std::floor(1 + 9 * stream.uniform(drawn++));
        const double before = 8 * (trial % 3), after = 10 * (trial % 2);
        const auto spans = split_stages(costs, before, after, stages);
        ASSERT_EQ(int(spans.size()), stages);
        for (int s = 0; s < stages; ++s) {
          EXPECT_GT(spans[s].size(), 0);
          EXPECT_EQ(spans[s].first, s == 0 ? 0 : spans[s - 1].last);
        }
        EXPECT_EQ(spans.back().last, layers);
        EXPECT_EQ(slowest(spans, costs, before, after), least(costs, before, after, stages)) << layers << " layers, " << stages << " stages";
      }
}

// Reference solution: dynamic programming over stages that tries every boundary. Among equally good splits, the first
// is kept.
std::vector<Span> split_by_dynamic_programming(const std::vector<double>& costs, double before, double after, int stages) {
  const int layers = int(costs.size());
  std::vector<double> sum(layers + 1, 0);
  std::partial_sum(costs.begin(), costs.end(), sum.begin() + 1);
  const auto cost = [&](int stage, int first, int last) {
    return sum[last] - sum[first] + (stage == 0 ? before : 0) + (stage == stages - 1 ? after : 0);
  };
  std::vector best(stages, std::vector<double>(layers + 1, INFINITY));
  std::vector from(stages, std::vector<int>(layers + 1, 0));
  for (int n = 1; n <= layers; ++n) best[0][n] = cost(0, 0, n);
  for (int s = 1; s < stages; ++s)
    for (int n = s + 1; n <= layers; ++n)
      for (int boundary = s; boundary < n; ++boundary) {
        const double slowest = std::max(best[s - 1][boundary], cost(s, boundary, n));
        if (slowest < best[s][n]) best[s][n] = slowest, from[s][n] = boundary;
      }
  std::vector<Span> spans(stages);
  for (int s = stages - 1, last = layers; s >= 0; --s) {
    const int first = s == 0 ? 0 : from[s][last];
    spans[s] = {first, last};
    last = first;
  }
  return spans;
}

TEST(layout, stage_split_equals_dynamic_programming) {
  std::mt19937 random(1);
  const auto below = [&](double most) { return std::uniform_real_distribution<double>(0, most)(random); };
  for (int trial = 0; trial < 3000; ++trial) {
    const int layers = 1 + int(random() % 40), stages = 1 + int(random() % layers), kind = trial % 4;
    std::vector<double> costs(layers);
    for (double& c : costs) c = kind == 0 ? 1 : kind == 1 ? std::floor(below(4)) : kind == 2 ? below(10) : std::exp(below(20));
    const double before = trial % 3 ? below(20) : 0, after = trial % 5 ? below(20) : 0;
    const auto fast = split_stages(costs, before, after, stages), slow = split_by_dynamic_programming(costs, before, after, stages);
    for (int s = 0; s < stages; ++s)
      ASSERT_TRUE(fast[s].first == slow[s].first && fast[s].last == slow[s].last) << "trial " << trial << ", stage " << s << " of " << stages;
  }
}

TEST(layout, refuses_more_stages_than_layers) { EXPECT_THROW(split_stages({1, 1}, 0, 0, 3), Error); }

TEST(layout, position_matches_its_coordinates) {
  const Layout l = grid_layout(3, 2, 4, {{0, 1}, {1, 2}});
  EXPECT_EQ(l.ranks(), 24);
  EXPECT_EQ(l.size(Axis::tensor), 4);
  for (int position = 0; position < l.ranks(); ++position)
    EXPECT_EQ((l.coordinate(position, Axis::data) * 2 + l.coordinate(position, Axis::pipeline)) * 4 + l.coordinate(position, Axis::tensor), position);
}

TEST(layout, coordinates_follow_the_axis_order) {
  const std::map<Axis, int> sizes{{Axis::data, 3}, {Axis::pipeline, 2}, {Axis::tensor, 4}};
  std::vector<Axis> order{Axis::data, Axis::pipeline, Axis::tensor};
  do {
    const Layout l = grid_layout(3, 2, 4, {{0, 1}, {1, 2}}, {}, order);
    int position = 0;
    for (int a = 0; a < sizes.at(order[0]); ++a)
      for (int b = 0; b < sizes.at(order[1]); ++b)
        for (int c = 0; c < sizes.at(order[2]); ++c, ++position) {
          const std::map<Axis, int> here{{order[0], a}, {order[1], b}, {order[2], c}};
          for (const auto& [axis, coordinate] : here) EXPECT_EQ(l.coordinate(position, axis), coordinate);
          EXPECT_EQ(l.coordinate(position, all_axes), position);
          EXPECT_EQ(l.coordinate(position, all_but(order[1])), a * sizes.at(order[2]) + c);
          EXPECT_EQ(l.position_at([&](Axis axis) { return here.at(axis); }), position);
        }
    for (const auto& [axis, size] : sizes) EXPECT_EQ(l.size(axis), size);
    EXPECT_EQ(l.size(all_but(order[0])) * l.size(order[0]), l.ranks());
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(layout, invalid_axis_orders_are_refused) {
  EXPECT_EQ(axis_order({"tensor", "data", "context", "pipeline"}), (std::vector{Axis::tensor, Axis::data, Axis::context, Axis::pipeline}));
  EXPECT_EQ(axis_order({"data", "tensor", "pipeline"}), (std::vector{Axis::data, Axis::context, Axis::tensor, Axis::pipeline}));
  EXPECT_EQ(axis_order(default_axis_order()), (std::vector{Axis::data, Axis::pipeline, Axis::context, Axis::tensor}));
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {}, {"data", "pipeline"}, {"data", "data", "tensor"}, {"data", "pipeline", "tensors"}, {"data", "pipeline", "tensor", "data"}})
    EXPECT_THROW(axis_order(wrong), Error);
}

TEST(layout, permutation_is_inverted) {
  const std::vector<int> permutation{5, 2, 7, 0, 3, 6, 1, 4};
  const Layout l = grid_layout(2, 2, 2, {{0, 1}, {1, 2}}, permutation);
  for (int position = 0; position < 8; ++position) EXPECT_EQ(l.position_of(permutation[position]), position);
  EXPECT_EQ(grid_layout(2, 2, 2, {{0, 1}, {1, 2}}).position_of(5), 5);
}

TEST(layout, invalid_permutations_are_refused) {
  check_permutation({}, 4);
  check_permutation({3, 1, 0, 2}, 4);
  for (const std::vector<int>& wrong : {std::vector{0, 1, 2}, {0, 1, 2, 2}, {1, 2, 3, 4}, {-1, 0, 1, 2}, {0, 1, 2, 3, 4}})
    EXPECT_THROW(check_permutation(wrong, 4), Error);
}

}  // namespace
}  // namespace gyr::layout_suite
