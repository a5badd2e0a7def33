// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/activation.hpp"

#include "regression/support/tensors.hpp"

namespace gyr::testing::activation_suite {

namespace {

constexpr Index height = 21, width = 37, full = 48;  // width is no multiple of a SIMD vector, full is one
constexpr double m = 0.75;
constexpr Activation all[] = {Activation::silu,           Activation::gelu, Activation::gelu_tanh, Activation::relu2,     Activation::tanh,
                              Activation::clamped_swiglu, Activation::relu, Activation::sigmoid,   Activation::quick_gelu};

// Reference activation functions, by the formulas in kernels/ops/activation.hpp.
double value(Activation a, double x) {
  switch (a) {
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::gelu: return x * std::erfc(-x / std::sqrt(2)) / 2;
    case Activation::gelu_tanh: return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::relu2: return std::pow(std::max(x, 0.0), 2);
    case Activation::tanh: return std::tanh(x);
    case Activation::clamped_swiglu: return std::min(x, 7.0) / (1 + std::exp(-1.702 * std::min(x, 7.0)));
    case Activation::relu: return std::max(x, 0.0);
    case Activation::sigmoid: return 1 / (1 + std::exp(-x));
    case Activation::quick_gelu: return x / (1 + std::exp(-1.702 * x));
  }
  return 0;
}
// Factor that multiplies the activated gate, as a function of `up`, and its derivative.
double linear_factor(Activation a, double up) { return a == Activation::clamped_swiglu ? std::clamp(up, -7.0, 7.0) + 1 : up; }
double gate_factor_slope(Activation a, double up) { return a == Activation::clamped_swiglu && std::abs(up) > 7 ? 0 : 1; }
double slope_at(Activation a, double x) {
  constexpr double h = 1e-5;
  return (8 * (value(a, x + h) - value(a, x - h)) - (value(a, x + 2 * h) - value(a, x - 2 * h))) / (12 * h);
}

template <class T>
void gated_agrees_with_plain_loops(Activation a, Index width) {
  Workbench bench;
  const auto gate_up = bench.normal<T>(height, 2 * width), dgate_up = bench.normal<T>(height, 2 * width);
  const auto y = bench.normal<T>(height, width), dy = bench.normal<T>(height, width);
  std::vector<double> want(height * width), slopes(2 * height * width);
  for (Index i = 0; i < height * 2 * width && a == Activation::clamped_swiglu; ++i)
    gate_up.data()[i] = T(5 * double(gate_up.data()[i]));  // reaches the clamping limits of +-7
  for (Index r = 0; r < height; ++r)
    for (Index f = 0; f < width; ++f) {
      const double s = m * double(gate_up(r, f)), up = double(gate_up(r, width + f)), d = double(dy(r, f));
      want[r * width + f] = linear_factor(a, up) * value(a, s);
      slopes[2 * r * width + f] = d * linear_factor(a, up) * slope_at(a, s) * m;
      slopes[(2 * r + 1) * width + f] = d * value(a, s) * gate_factor_slope(a, up);
    }
  glu<T>(bench.dev, a, gate_up, m, y);
  glu_backward<T>(bench.dev, a, dy, gate_up, m, dgate_up);
  EXPECT_LE(difference(values_of(y), want), tolerance<T>);
  EXPECT_LE(difference(values_of(dgate_up), slopes), std::max(tolerance<T>, 1e-9));
}

template <class T>
void plain_agrees_with_plain_loops(Activation a, Index width) {
  Workbench bench;
  const auto x = bench.normal<T>(height, width), dx = bench.normal<T>(height, width);
  const auto y = bench.normal<T>(height, width), dy = bench.normal<T>(height, width);
  std::vector<double> want(height * width), slopes(height * width);
  for (Index i = 0; i < height * width; ++i) {
    const double s = m * double(x.data()[i]);
    want[i] = value(a, s);
    slopes[i] = double(dy.data()[i]) * slope_at(a, s) * m;
  }
  activate<T>(bench.dev, a, x, m, y);
  activate_backward<T>(bench.dev, a, dy, x, m, dx);
  EXPECT_LE(difference(values_of(y), want), tolerance<T>);
  EXPECT_LE(difference(values_of(dx), slopes), std::max(tolerance<T>, 1e-9));
}

template <class T>
void agrees_with_plain_loops() {
  for (const Activation a : all)
    for (const Index columns : {width, full}) {
      SCOPED_TRACE(int(a));
      gated_agrees_with_plain_loops<T>(a, columns);
      plain_agrees_with_plain_loops<T>(a, columns);
    }
}

}  // namespace

TEST(activation, matches_reference_loops) {
  agrees_with_plain_loops<double>();
  agrees_with_plain_loops<float>();
  agrees_with_plain_loops<bf16>();
}

TEST(activation, gradients_equal_finite_differences) {
  Workbench bench;
  const auto gate_up = bench.normal<double>(5, 14), dgate_up = bench.zeros<double>(5, 14);
  const auto y = bench.zeros<double>(5, 7), dy = bench.normal<double>(5, 7);
  for (const Activation a : all) {
    const auto loss = [&] {
      glu<double>(bench.dev, a, gate_up, m, y);
      return dot(values_of(y), values_of(dy));
    };
    glu_backward<double>(bench.dev, a, dy, gate_up, m, dgate_up);
    EXPECT_LE(difference(values_of(dgate_up), slope(flat(gate_up), loss)), 1e-9) << int(a);
  }
}

// For silu and both GELUs: a gate g far below zero gives 0, and a gate g far above zero gives g * up.
TEST(activation, extreme_inputs_stay_finite) {
  for (const Activation a : {Activation::silu, Activation::gelu, Activation::gelu_tanh}) {
    Workbench bench;
    const auto gate_up = bench.normal<float>(2, 32), y = bench.zeros<float>(2, 16), dgate_up = bench.zeros<float>(2, 32);
    for (Index f = 0; f < 16; ++f) gate_up(0, f) = -1e4f * float(f + 1), gate_up(1, f) = 1e4f * float(f + 1);
    glu<float>(bench.dev, a, gate_up, 1, y);
    glu_backward<float>(bench.dev, a, y, gate_up, 1, dgate_up);
    for (Index f = 0; f < 16; ++f) {
      EXPECT_EQ(y(0, f), 0) << int(a);
      EXPECT_EQ(y(1, f), gate_up(1, f) * gate_up(1, 16 + f)) << int(a);
    }
    for (const double v : values_of(dgate_up)) EXPECT_TRUE(std::isfinite(v)) << int(a);
  }
}

}  // namespace gyr::testing::activation_suite
