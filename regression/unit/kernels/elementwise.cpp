// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/elementwise.hpp"

#include "regression/support/tensors.hpp"

namespace gyr::testing::elementwise_suite {

namespace {

constexpr Index height = 150, width = 37;  // more than two blocks of rows; width is no multiple of a SIMD vector
constexpr Index full = 48;                 // columns that fill whole vectors if the first one is a multiple of 16

template <class T>
void fill_writes_everywhere(Index padding) {
  Workbench bench;
  const auto x = bench.normal<T>(40000 + 2 * padding);
  fill<T>(bench.dev, rows(x, padding, 40000), -1.5);
  const auto v = values_of(x);
  EXPECT_TRUE(std::all_of(v.begin() + padding, v.end() - padding, [](double e) { return e == -1.5; }));
  EXPECT_NE(v[padding - 1], -1.5);
  EXPECT_NE(v[padding + 40000], -1.5);
}

template <class T>
void add_adds(Index n) {
  Workbench bench;
  const auto x = bench.normal<T>(n), y = bench.normal<T>(n);
  auto want = values_of(x);
  const auto before = values_of(y);
  for (std::size_t i = 0; i < want.size(); ++i) want[i] = double(T(Acc<T>(before[i]) + Acc<T>(want[i])));
  add<T>(bench.dev, x, y);
  EXPECT_EQ(values_of(y), want);
}

// Reads the second half of the columns of a matrix, as a layer does with its projections.
template <class T>
void multiply_multiplies(bool strided) {
  Workbench bench;
  const auto a = bench.normal<T>(height, 2 * width), b = bench.normal<T>(height, width);
  const auto y = bench.normal<T>(height, width);
  const Matrix<const T> left = strided ? columns(a, width, width) : Matrix<const T>(Tensor2<T>(a.data(), height, width));
  multiply<T>(bench.dev, left, b, y);
  for (Index r = 0; r < height; ++r)
    for (Index c = 0; c < width; ++c) ASSERT_EQ(double(y(r, c)), double(T(Acc<T>(left(r, c)) * Acc<T>(b(r, c))))) << r << " " << c;
}

template <class S, class T>
void converts(bool strided) {
  Workbench bench;
  const auto x = bench.normal<S>(height, 2 * width);
  const auto y = bench.zeros<T>(height, 3 * width);
  const Matrix<const S> from = strided ? columns(x, width, width) : Matrix<const S>(Tensor2<S>(x.data(), height, width));
  const Matrix<T> to = strided ? columns(y, width, width) : Matrix<T>(Tensor2<T>(y.data(), height, width));
  convert<S, T>(bench.dev, from, to);
  EXPECT_EQ(values_of(to), values_of(from));  // exact, because all values are representable in bf16
  double outside = 0;
  for (const double v : values_of(y)) outside += std::abs(v);
  for (const double v : values_of(to)) outside -= std::abs(v);
  EXPECT_NEAR(outside, 0, 1e-9);
}

template <class T>
void bias_and_scale(bool with_bias, bool with_scale, Index width, Index first) {
  using A = Acc<T>;
  Workbench bench;
  const auto wide = bench.normal<T>(height, width + 2 * first);
  const auto y = columns(wide, first, width);
  const auto bias = with_bias ? bench.normal<A>(width) : Tensor1<A>(), scale = with_scale ? bench.normal<A>(width) : Tensor1<A>();
  auto want = values_of(wide);
  for (Index r = 0; r < height; ++r)
    for (Index c = 0; c < width; ++c) {
      double& v = want[r * (width + 2 * first) + c + first];
      v = (with_scale ? scale(c) : 1) * (v + (with_bias ? bias(c) : 0));
    }
  bias_scale<T>(bench.dev, bias, scale, y);
  EXPECT_LE(difference(values_of(wide), want), tolerance<T>);
}

template <class T>
void bias_gradient(Index width, Index first) {
  Workbench bench;
  const auto wide = bench.normal<T>(height, width + 2 * first);
  const auto dy = columns(wide, first, width);
  const auto dbias = bench.normal<Acc<T>>(width), again = bench.copy(dbias);
  auto want = values_of(dbias);
  for (Index r = 0; r < height; ++r)
    for (Index c = 0; c < width; ++c) want[c] += 0.25 * double(dy(r, c));
  bias_backward<T>(bench.dev, dy, 0.25, dbias);
  EXPECT_LE(difference(values_of(dbias), want), tolerance<Acc<T>>);
  bias_backward<T>(bench.dev, dy, 0.25, again);
  EXPECT_TRUE(same_bits(dbias, again));
}

}  // namespace

TEST(elementwise, fill_writes_only_its_range) {
  for (const Index padding : {1, 16}) {
    fill_writes_everywhere<double>(padding);
    fill_writes_everywhere<float>(padding);
    fill_writes_everywhere<bf16>(padding);
  }
}

TEST(elementwise, add_rounds_once) {
  for (const Index n : {40000, 40001}) {
    add_adds<double>(n);
    add_adds<float>(n);
    add_adds<bf16>(n);
  }
}

TEST(elementwise, multiply_rounds_once) {
  for (const bool strided : {false, true}) {
    multiply_multiplies<double>(strided);
    multiply_multiplies<float>(strided);
    multiply_multiplies<bf16>(strided);
  }
}

TEST(elementwise, convert_keeps_values_representable_in_both_types) {
  for (const bool strided : {false, true}) {
    converts<double, double>(strided);
    converts<float, float>(strided);
    converts<float, bf16>(strided);
    converts<bf16, float>(strided);
    converts<bf16, bf16>(strided);
  }
}

TEST(elementwise, convert_rounds_to_nearest_keeps_nan_and_infinity) {
  Workbench bench;
  const auto x = bench.zeros<float>(1, 64);
  for (Index i = 0; i < 64; ++i) x(0, i) = 1 + float(i) / 1000;
  x(0, 5) = NAN;
  x(0, 6) = -INFINITY;
  const auto y = bench.zeros<bf16>(1, 64);
  convert<float, bf16>(bench.dev, Matrix<float>(x), Matrix<bf16>(y));
  const auto bits = [&](bf16 v) { return std::isnan(float(v)) ? 0 : v.bits; };  // the payload of a NaN is unspecified
  for (Index i = 0; i < 64; ++i) EXPECT_EQ(bits(y(0, i)), bits(bf16(x(0, i)))) << i;
  EXPECT_TRUE(std::isnan(float(y(0, 5))));
  EXPECT_EQ(float(y(0, 6)), -INFINITY);
}

TEST(elementwise, bias_and_scale_may_each_be_absent) {
  for (const bool bias : {false, true})
    for (const bool scale : {false, true}) {
      bias_and_scale<double>(bias, scale, width, 2), bias_and_scale<double>(bias, scale, full, 16);
      bias_and_scale<float>(bias, scale, width, 2), bias_and_scale<float>(bias, scale, full, 16);
      bias_and_scale<bf16>(bias, scale, width, 2), bias_and_scale<bf16>(bias, scale, full, 16);
    }
}

TEST(elementwise, bias_gradient_is_bitwise_reproducible) {
  bias_gradient<double>(width, 2), bias_gradient<double>(full, 16);
  bias_gradient<float>(width, 2), bias_gradient<float>(full, 16);
  bias_gradient<bf16>(width, 2), bias_gradient<bf16>(full, 16);
}

TEST(elementwise, empty_tensors_and_dry_runs_change_nothing) {
  Workbench bench;
  const auto empty = bench.zeros<float>(0, 8);
  const auto dbias = bench.zeros<float>(8);
  bias_backward<float>(bench.dev, Matrix<float>(empty), 1, dbias);
  fill<float>(bench.dev, flat(empty), 1);
  EXPECT_EQ(values_of(dbias), std::vector<double>(8));

  Device dry(true, 0);
  Arena memory = Arena::dry_run(Memory::activations);
  const auto dy = memory.tensor<float>(height, width);
  const auto db = memory.tensor<float>(width);
  bias_backward<float>(dry, Matrix<float>(dy), 1, db);
  fill<float>(dry, flat(dy), 1);
  const auto real = bench.normal<float>(height, width);
  Device counted(false, 1 << 20);
  bias_backward<float>(counted, Matrix<float>(real), 1, bench.zeros<float>(width));
  EXPECT_EQ(dry.scratch.high_water(), counted.scratch.high_water());
  EXPECT_EQ(dry.scratch.used(), 0);
  EXPECT_EQ(dry.work()[0].bytes, counted.work()[0].bytes);
}

TEST(elementwise, wrong_shapes_are_internal_errors) {
  Workbench bench;
  EXPECT_THROW(add<float>(bench.dev, bench.zeros<float>(3), bench.zeros<float>(4)), Error);
  EXPECT_THROW(bias_backward<float>(bench.dev, Matrix<float>(bench.zeros<float>(2, 3)), 1, bench.zeros<float>(2)), Error);
}

}  // namespace gyr::testing::elementwise_suite
