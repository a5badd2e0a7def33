// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/rope.hpp"

#include "regression/support/values.hpp"

namespace gyr::testing::rope_suite {

namespace {

struct Case {
  Index rows = 5, num_heads = 3, head_dim = 8;
  double rope_theta = 1e4, scale = 0.75;
  std::vector<std::int32_t> positions{0, 1, 7, 30, 1000};
  Index gap = 3;  // padding elements between the rows of x
  Tensor1<const std::int32_t> places() const { return Tensor1<const std::int32_t>(positions.data(), rows); }
  Index furthest() const { return *std::max_element(positions.begin(), positions.end()); }
};

// Cosine and sine tables for all positions of a case.
template <class A>
struct Table {
  explicit Table(const Case& s) : cosine(s.furthest() + 1, s.head_dim / 2), sine(s.furthest() + 1, s.head_dim / 2) {
    Device dev(false, 0);
    rope_table<A>(dev, s.rope_theta, {}, rotation());
  }
  Rotation<A> rotation() { return {cosine.tensor(), sine.tensor()}; }
  Block<A> cosine, sine;
};

template <class T>
Values rotated(const Case& s, Rotate direction, const Values& x, bool in_place = false) {
  using A = Acc<T>;
  Device dev(false, 1 << 20);
  Table<A> table(s);
  Block<T> from(s.rows, s.num_heads * s.head_dim, x, s.gap), to(s.rows, s.num_heads * s.head_dim, {}, 2 * s.gap);
  rope<T, T>(dev, direction, s.num_heads, s.scale, table.rotation(), s.places(), from.template matrix<const T>(),
             in_place ? from.matrix() : to.matrix());
  return in_place ? from.values() : to.values();
}

// One case whose half heads do not fill a vector, and one whose half heads do.
std::vector<Case> cases() {
  Case full;
  full.head_dim = 32, full.gap = 0;
  return {Case(), full};
}

}  // namespace

// A pair (u_j, u_{j+E/2}) is the complex number u_j + i u_{j+E/2}. It is multiplied by e^{i position theta^(-2j/E)},
// where E is head_dim and theta is rope_theta.
TEST(rope, channel_pairs_are_rotated_as_complex_numbers) {
  for (const Case& s : cases()) {
    const Index half = s.head_dim / 2;
    const Values x = random_values(s.rows * s.num_heads * s.head_dim, 1), y = rotated<double>(s, Rotate::forward, x);
    for (Index r = 0; r < s.rows; ++r)
      for (Index h = 0; h < s.num_heads; ++h)
        for (Index j = 0; j < half; ++j) {
          const Index at = (r * s.num_heads + h) * s.head_dim + j;
          const double angle = s.positions[r] * std::pow(s.rope_theta, -2.0 * j / s.head_dim);
          EXPECT_NEAR(y[at], s.scale * (x[at] * std::cos(angle) - x[at + half] * std::sin(angle)), 1e-12);
          EXPECT_NEAR(y[at + half], s.scale * (x[at + half] * std::cos(angle) + x[at] * std::sin(angle)), 1e-12);
        }
  }
}

TEST(rope, backward_is_the_transpose_of_forward) {
  const Case s;
  const Index n = s.rows * s.num_heads * s.head_dim;
  const Values x = random_values(n, 1), y = random_values(n, 2);
  EXPECT_NEAR(dot(rotated<double>(s, Rotate::forward, x), y), dot(x, rotated<double>(s, Rotate::backward, y)), 1e-12);
}

// The dot product of a query at position i and a key at position j depends only on i - j.
TEST(rope, query_key_scores_depend_only_on_distance) {
  Case s, later;
  s.rows = later.rows = 2;
  s.num_heads = later.num_heads = 1;
  s.positions = {3, 11};
  later.positions = {3 + 500, 11 + 500};
  const Values x = random_values(2 * s.head_dim, 4);
  const auto product = [&](const Case& at) {
    const Values y = rotated<double>(at, Rotate::forward, x);
    return dot(Values(y.begin(), y.begin() + s.head_dim), Values(y.begin() + s.head_dim, y.end()));
  };
  EXPECT_NEAR(product(s), product(later), 1e-12);
}

TEST(rope, rotation_works_in_place) {
  const Case s;
  const Values x = random_values(s.rows * s.num_heads * s.head_dim, 1);
  EXPECT_EQ(rotated<float>(s, Rotate::forward, x, true), rotated<float>(s, Rotate::forward, x));
  EXPECT_EQ(rotated<bf16>(s, Rotate::backward, x, true), rotated<bf16>(s, Rotate::backward, x));
}

TEST(rope, float_and_bf16_follow_double) {
  for (Case s : cases()) {
    s.positions.back() = 50;
    const Values x = rounded<bf16>(random_values(s.rows * s.num_heads * s.head_dim, 1)), y = rotated<double>(s, Rotate::forward, x);
    expect_near(rotated<float>(s, Rotate::forward, x), y, 1e-5);
    expect_near(rotated<bf16>(s, Rotate::forward, x), y, 2e-2);
  }
}

// In a bf16 model, gradients are read as float and written as bf16. The opposite conversion widens bf16 to float.
TEST(rope, rotation_converts_between_float_and_bf16) {
  const Case s;
  Device dev(false, 1 << 20);
  Table<float> table(s);
  const Index columns = s.num_heads * s.head_dim;
  const Values x = rounded<bf16>(random_values(s.rows * columns, 1));
  Block<float> wide(s.rows, columns, x), wide_out(s.rows, columns);
  Block<bf16> narrow(s.rows, columns, x), narrow_out(s.rows, columns);
  rope<float, bf16>(dev, Rotate::forward, s.num_heads, s.scale, table.rotation(), s.places(), wide.matrix(), narrow_out.matrix());
  rope<bf16, float>(dev, Rotate::forward, s.num_heads, s.scale, table.rotation(), s.places(), narrow.matrix(), wide_out.matrix());
  EXPECT_EQ(narrow_out.values(), rotated<bf16>(s, Rotate::forward, x));
  EXPECT_EQ(wide_out.values(), rotated<float>(s, Rotate::forward, x));
}

// At theta = 1e11 and large positions, the float table still satisfies cos^2 + sin^2 = 1. Position 0 is the identity.
TEST(rope, table_entries_have_unit_length) {
  Case s;
  s.rope_theta = 1e11;
  s.positions = {0, 1, 100, 16383, 262143};
  s.head_dim = 64;
  Table<float> table(s);
  const Values c = table.cosine.values(), d = table.sine.values();
  for (std::size_t i = 0; i < c.size(); ++i) ASSERT_NEAR(c[i] * c[i] + d[i] * d[i], 1, 1e-6);
  EXPECT_EQ(Values(c.begin(), c.begin() + 32), Values(32, 1));
  EXPECT_EQ(Values(d.begin(), d.begin() + 32), Values(32, 0));
  for (const Index p : s.positions) EXPECT_NEAR(c[p * 32], std::cos(double(p)), 1e-6);  // for pair j = 0 the angle equals the position
}

// Llama 3 frequency scaling with the parameters of Llama 3.2 1B (theta 5e5, 32 pairs of 64 channels), as transformers
// 5.23 computes it in float, and linear scaling.
TEST(rope, llama3_and_linear_scaling_match_published_formulas) {
  const RopeFrequencies longer(5e5, {RopeScaling::llama3, 32, 1, 4, 8192}, 32), linear(5e5, {RopeScaling::linear, 4}, 32), plain(5e5, {}, 32);
  const auto plain_at = [&](Index j) { return std::pow(5e5, -2.0 * double(j) / 64); };
  for (Index j = 0; j < 32; ++j) {
    const double rotations = 8192 * plain_at(j) / (2 * M_PI), fraction = std::clamp((rotations - 1) / 3, 0.0, 1.0);
    EXPECT_NEAR(longer.at<float>(j) / plain_at(j), fraction + (1 - fraction) / 32, 2e-5) << j;
    EXPECT_NEAR(linear.at<double>(j) / plain_at(j), 0.25, 1e-12);
    EXPECT_EQ(plain.at<double>(j), 1 / std::pow(5e5, double(2 * j) / 64));
  }
  EXPECT_EQ(longer.amplitude(), 1);
}

// Dynamic NTK scaling: the highest frequency is unchanged. The lowest frequency is divided by factor * length /
// original_length - (factor - 1).
TEST(rope, dynamic_scaling_depends_on_sequence_length) {
  const RopeScaling scaling{RopeScaling::dynamic, 3, 1, 4, 100};
  const RopeFrequencies plain(1e4, {}, 16), dynamic(1e4, scaling, 16), shorter = dynamic.of_length(100), longer = dynamic.of_length(250);
  for (Index j = 0; j < 16; ++j) {
    EXPECT_EQ(shorter.at<float>(j), plain.at<float>(j)) << j;
    EXPECT_NEAR(longer.at<double>(j) / plain.at<double>(j), std::pow(3 * 2.5 - 2, -double(j) / 15), 1e-12) << j;
  }
  EXPECT_EQ(longer.amplitude(), 1);
}

// Each row of a table of rows has the angles of its position in a sequence of its own length.
TEST(rope, rows_are_scaled_by_own_sequence_length) {
  const RopeScaling scaling{RopeScaling::dynamic, 3, 1, 4, 10};
  const std::vector<std::int32_t> positions{0, 4, 9, 9, 12, 700}, lengths{1, 10, 10, 11, 30, 701};
  const Index rows = Index(positions.size()), half = 4;
  Block<double> cosine(rows, half), sine(rows, half);
  const auto tensor = [](const std::vector<std::int32_t>& x) { return Tensor1<const std::int32_t>(x.data(), x.size()); };
  Device dev(false, 0);
  rope_table_of_rows<double>(dev, 50, scaling, {tensor(positions)}, tensor(lengths), {cosine.tensor(), sine.tensor()});
  for (Index r = 0; r < rows; ++r)
    for (Index j = 0; j < half; ++j) {
      const double growth = std::max(1.0, 3 * double(lengths[r]) / 10 - 2), theta = 50 * std::pow(growth, 8.0 / 6);
      const double angle = positions[r] * std::pow(theta, -double(j) / half);
      EXPECT_NEAR(cosine.values()[r * half + j], std::cos(angle), 1e-11) << r << " " << j;
      EXPECT_NEAR(sine.values()[r * half + j], std::sin(angle), 1e-11) << r << " " << j;
    }
}

// Positions of several components: each section of the pairs turns by its own component, with the frequencies of all pairs
// or, if sections restart, with those of the first section.
TEST(rope, sections_rotate_by_their_position_component) {
  const std::vector<std::int32_t> positions{0, 0, 0, 3, 3, 3, 3, 4, 5, 7, 900, 2};
  const Index rows = 4, half = 8;
  Device dev(false, 0);
  for (const bool restarts : {false, true}) {
    const RotarySections sections = restarts ? RotarySections{3, {3, 6, 8}, true} : RotarySections{3, {2, 5, 8}};
    Block<double> cosine(rows, half), sine(rows, half);
    const RotaryPositions values{Tensor1<const std::int32_t>(positions.data(), positions.size()), sections};
    rope_table_of_rows<double>(dev, 50, {}, values, {}, {cosine.tensor(), sine.tensor()});
    for (Index r = 0, j = 0; r < rows; j = (j + 1) % half, r += j == 0) {
      const Index begins[] = {0, sections.ends[0], sections.ends[1]}, s = j < begins[1] ? 0 : j < begins[2] ? 1 : 2;
      const double power = restarts ? double(j - begins[s]) / 3 : double(j) / half, angle = positions[r * 3 + s] * std::pow(50, -power);
      EXPECT_NEAR(cosine.values()[r * half + j], std::cos(angle), 1e-12) << r << " " << j;
      EXPECT_NEAR(sine.values()[r * half + j], std::sin(angle), 1e-12) << r << " " << j;
    }
  }
}

// Rows whose components are equal have the bits of RoPE, in every type.
template <class A>
void expect_bits_of_rope() {
  const Case s;
  const Index half = 4;
  Device dev(false, 0);
  for (const RopeScaling& scaling : {RopeScaling{}, RopeScaling{RopeScaling::llama3, 32, 1, 4, 64}}) {
    Block<A> cosine(s.furthest() + 1, half), sine(s.furthest() + 1, half), row_cosine(s.rows, half), row_sine(s.rows, half);
    rope_table<A>(dev, s.rope_theta, scaling, {cosine.tensor(), sine.tensor()});
    std::vector<std::int32_t> equal;
    for (const std::int32_t p : s.positions) equal.insert(equal.end(), 3, p);
    const RotaryPositions values{Tensor1<const std::int32_t>(equal.data(), equal.size()), {3, {1, 2, 4}}};
    rope_table_of_rows<A>(dev, s.rope_theta, scaling, values, {}, {row_cosine.tensor(), row_sine.tensor()});
    for (Index r = 0; r < s.rows; ++r)
      for (Index j = 0; j < half; ++j) {
        EXPECT_EQ(row_cosine.values()[r * half + j], cosine.values()[s.positions[r] * half + j]) << r << " " << j;
        EXPECT_EQ(row_sine.values()[r * half + j], sine.values()[s.positions[r] * half + j]) << r << " " << j;
      }
  }
}

TEST(rope, equal_position_components_give_the_bits_of_rope) { expect_bits_of_rope<double>(), expect_bits_of_rope<float>(); }

TEST(rope, wrong_position_components_are_refused) {
  const std::vector<std::int32_t> positions(12, 0);
  Block<double> cosine(4, 8), sine(4, 8);
  Device dev(false, 0);
  for (const RotarySections& wrong :
       {RotarySections{2, {3, 8}}, RotarySections{3, {3, 6, 7}}, RotarySections{3, {3, 3, 8}}, RotarySections{3, {2, 6, 8}, true}})
    EXPECT_THROW(rope_table_of_rows<double>(dev, 50, {}, {Tensor1<const std::int32_t>(positions.data(), positions.size()), wrong}, {},
                                            {cosine.tensor(), sine.tensor()}),
                 std::exception);
}

// YaRN without truncation: the ramp starts and ends at fractional pair indices.
TEST(rope, yarn_ramp_ends_are_fractional_without_truncation) {
  RopeScaling scaling{RopeScaling::yarn, 16, 1, 32, 2048};
  scaling.truncate = false;
  const RopeFrequencies yarn(1e4, scaling, 64);
  const auto pair = [](double rotations) { return 64 * std::log(2048 / (rotations * 2 * M_PI)) / std::log(1e4); };
  for (Index j = 0; j < 64; ++j) {
    const double fraction = 1 - std::clamp((double(j) - pair(32)) / (pair(1) - pair(32)), 0.0, 1.0), f = std::pow(1e4, -double(j) / 64);
    EXPECT_NEAR(yarn.at<double>(j) / f, fraction + (1 - fraction) / 16, 1e-12) << j;
  }
}

// YaRN as in its paper: a pair that makes at least beta_fast rotations over the original length keeps its frequency. A
// pair with at most beta_slow rotations is interpolated. Between these two pairs the fraction that is kept falls in
// equal steps.
TEST(rope, yarn_ramp_is_linear_between_pairs) {
  const RopeFrequencies yarn(1e4, {RopeScaling::yarn, 16, 1, 32, 2048}, 64), given(1e4, {RopeScaling::yarn, 16, 1, 32, 2048, 1.25}, 64);
  EXPECT_NEAR(yarn.amplitude(), 0.1 * std::log(16.0) + 1, 1e-15);
  EXPECT_EQ(given.amplitude(), 1.25);
  std::vector<double> fraction;
  for (Index j = 0; j < 64; ++j) {
    const double f = std::pow(1e4, -double(j) / 64), rotations = 2048 * f / (2 * M_PI);
    fraction.push_back((yarn.at<double>(j) / f - 1.0 / 16) / (1 - 1.0 / 16));
    if (rotations >= 32 || rotations <= 1) {
      EXPECT_NEAR(fraction[j], rotations > 1, 1e-12) << j;
    }
  }
  std::vector<double> steps;
  for (Index j = 1; j < 64; ++j)
    if (fraction[j] < fraction[j - 1] - 1e-9) steps.push_back(fraction[j - 1] - fraction[j]);
  ASSERT_GT(steps.size(), 10u);
  for (const double step : steps) EXPECT_NEAR(step, 1 / double(steps.size()), 1e-9);
}

// Partial rotary embedding: the first channels of a wider head are rotated as in a head of that width. The other
// channels are only scaled.
TEST(rope, partial_rotary_rotates_only_the_first_channels) {
  for (const Index rotary_channels : {Index(0), Index(4), Index(16)})
    for (const Rotate way : {Rotate::forward, Rotate::backward}) {
      Case s;
      s.head_dim = rotary_channels;
      const Index width = 24, heads = s.num_heads;
      Device dev(false, 1 << 20);
      Table<double> table(s);
      const Values x = random_values(s.rows * heads * width, 1);
      Values first;
      for (Index i = 0; i < s.rows * heads; ++i) first.insert(first.end(), x.begin() + i * width, x.begin() + i * width + rotary_channels);
      Block<double> all(s.rows, heads * width, x, s.gap);
      rope<double, double>(dev, way, heads, s.scale, table.rotation(), s.places(), all.matrix<const double>(), all.matrix());
      const Values y = all.values(), want = rotary_channels ? rotated<double>(s, way, first) : Values();
      for (Index i = 0; i < s.rows * heads; ++i)
        for (Index e = 0; e < width; ++e)
          ASSERT_EQ(y[i * width + e], e < rotary_channels ? want[i * rotary_channels + e] : s.scale * x[i * width + e]) << e;
    }
}

}  // namespace gyr::testing::rope_suite
