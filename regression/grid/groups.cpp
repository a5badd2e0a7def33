// SPDX-License-Identifier: BSD-3-Clause
// Groups of ranks. For any axis sizes, axis order and rank permutation, the group of some axes consists of the ranks
// that differ only along these axes, in the order of their positions.
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "regression/support/grids.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::groups_suite {
namespace {

constexpr std::array every_axis{Axis::data, Axis::pipeline, Axis::tensor};

// Coordinates of every position, counted by plain nested loops over the axes.
std::vector<std::map<Axis, int>> coordinates_of(const std::vector<Axis>& order, const std::map<Axis, int>& sizes) {
  std::vector<std::map<Axis, int>> all;
  for (int a = 0; a < sizes.at(order[0]); ++a)
    for (int b = 0; b < sizes.at(order[1]); ++b)
      for (int c = 0; c < sizes.at(order[2]); ++c) all.push_back({{order[0], a}, {order[1], b}, {order[2], c}});
  return all;
}

struct Arrangement {
  std::map<Axis, int> sizes;
  std::vector<Axis> order;
  std::vector<int> permutation;

  int ranks() const { return sizes.at(Axis::data) * sizes.at(Axis::pipeline) * sizes.at(Axis::tensor); }
  Layout layout() const { return layout_of(sizes.at(Axis::data), sizes.at(Axis::pipeline), sizes.at(Axis::tensor), permutation, order); }
  std::string text() const { return fmt::format("{}, permutation [{}]", layout().text(), fmt::join(permutation, " ")); }
};

Arrangement drawn(std::mt19937& random) {
  Arrangement a;
  for (const Axis axis : every_axis) a.sizes[axis] = 1;
  for (int left = 8; left > 1;) {
    const int factor = 2 + int(random() % 2);
    if (factor <= left) a.sizes[every_axis[random() % 3]] *= factor;
    left /= factor + int(random() % 3);
  }
  a.order = {every_axis.begin(), every_axis.end()};
  std::shuffle(a.order.begin(), a.order.end(), random);
  a.permutation.resize(a.ranks());
  std::iota(a.permutation.begin(), a.permutation.end(), 0);
  if (random() % 2) std::shuffle(a.permutation.begin(), a.permutation.end(), random);
  return a;
}

// Expected positions of the ranks in the group of `position`.
std::vector<int> members(const Arrangement& a, int position, Axes along) {
  const auto coordinates = coordinates_of(a.order, a.sizes);
  std::vector<int> all;
  for (int other = 0; other < a.ranks(); ++other)
    if (std::all_of(every_axis.begin(), every_axis.end(),
                    [&](Axis axis) { return along.has(axis) || coordinates[other].at(axis) == coordinates[position].at(axis); }))
      all.push_back(other);
  return all;
}

void expect_group(Communicator& group, const std::vector<int>& expected, int position, const std::string& where) {
  EXPECT_EQ(group.size(), int(expected.size())) << where;
  ASSERT_LT(group.rank(), int(expected.size())) << where;
  EXPECT_EQ(expected[group.rank()], position) << where;
}

TEST(groups, group_members_differ_only_along_its_axes) {
  std::mt19937 random(20);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int trial = 0; trial < 16; ++trial) {
    Arrangement a = drawn(random);
    ASSERT_LE(a.ranks(), 8);
    std::vector<Axes> requests{{}, Axis::data, Axis::pipeline, Axis::tensor, all_axes};
    for (const Axis axis : every_axis) requests.push_back(all_but(axis));
    std::shuffle(requests.begin(), requests.end(), random);
    Grid* grid = grid_of(a.layout());
    if (!grid) continue;
    const int position = int(std::find(a.permutation.begin(), a.permutation.end(), rank) - a.permutation.begin());
    ASSERT_EQ(grid->position(), position) << a.text();
    for (const Axes along : requests) {
      const std::string where = fmt::format("{}: '{}' of position {}", a.text(), along.text(), position);
      const std::vector<int> expected = members(a, position, along);
      Communicator& group = grid->group(along);
      expect_group(group, expected, position, where);
      const double mine = position;
      EXPECT_EQ(group.gather({&mine, 1}), std::vector<double>(expected.begin(), expected.end())) << where;
      EXPECT_EQ(&grid->group(along), &group) << where;
      Grid dry = Grid::dry_run(a.layout(), position);
      expect_group(dry.group(along), expected, position, where + " in a dry run");
    }
  }
  sync_ranks();
}

}  // namespace
}  // namespace gyr::testing::groups_suite
