// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/distance_bias.hpp"

#include <cmath>
#include <random>

#include "regression/support/seed.hpp"
#include "regression/support/values.hpp"

namespace gyr::testing::distance_bias_suite {

namespace {

// Reference: T5's definition of the bucket of one distance, with the logarithm in the precision that T5 uses.
Index bucket_of(Index count, Index max_distance, bool both_ways, Index distance) {
  Index first = 0, apart = std::max<Index>(0, -distance);
  if (both_ways) {
    count /= 2;
    if (distance > 0) first = count;
    apart = std::abs(distance);
  }
  const Index exact = count / 2;
  if (apart < exact) return first + apart;
  const float part = std::log(float(apart) / float(exact)) / float(std::log(double(max_distance) / double(exact)));
  return first + std::min(count - 1, exact + Index(part * float(count - exact)));
}

struct Case {
  Index count, max_distance;
  bool both_ways;
};
std::vector<Case> cases() {
  std::vector<Case> list{{32, 128, true}, {32, 128, false}, {4, 3, true}, {4, 3, false}, {256, 1024, true}};
  std::mt19937_64 random(seed_of_run());
  for (int i = 0; i < 40; ++i) {
    const Index count = 2 * Index(2 + random() % 30);
    list.push_back({count, count / 2 + 1 + Index(random() % 300), random() % 2 == 0});
  }
  return list;
}

}  // namespace

TEST(distance_bias, buckets_match_t5_definition) {
  for (const Case& c : cases()) {
    const DistanceBuckets buckets(c.count, c.max_distance, c.both_ways);
    for (Index distance = -2 * c.max_distance; distance <= 2 * c.max_distance; ++distance)
      ASSERT_EQ(buckets.of(distance), bucket_of(c.count, c.max_distance, c.both_ways, distance))
          << c.count << " buckets up to " << c.max_distance << (c.both_ways ? " both ways" : "") << ", distance " << distance;
  }
}

// Each distance takes the value of its bucket. Backward is the transpose of forward: <b(table), y> = <table, b'(y)>.
TEST(distance_bias, backward_is_transpose_of_forward) {
  for (const Case& c : cases()) {
    const DistanceBuckets buckets(c.count, c.max_distance, c.both_ways);
    const Index heads = 3, reach = c.max_distance + 7, columns = 2 * reach - 1;
    Device dev(false, 1 << 20);
    Block<double> table(c.count, heads, random_values(c.count * heads, 1)), bias(heads, columns),
        y(heads, columns, random_values(heads * columns, 2)), dtable(c.count, heads, Values(c.count * heads, 1));
    distance_bias<double>(dev, buckets, table.tensor(), reach - 1, bias.tensor());
    distance_bias_backward<double>(dev, buckets, y.tensor(), reach - 1, dtable.tensor());
    const Values b = bias.values(), t = table.values();
    Values d = dtable.values();
    for (Index h = 0; h < heads; ++h)
      for (Index i = 0; i < columns; ++i) ASSERT_EQ(b[h * columns + i], t[buckets.of(i - (reach - 1)) * heads + h]);
    for (double& x : d) x -= 1;  // the gradient was added to ones
    EXPECT_NEAR(dot(b, y.values()), dot(t, d), 1e-11);
  }
}

}  // namespace gyr::testing::distance_bias_suite
