// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/swiglu.hpp"

#include "regression/tensors.hpp"

using namespace gyr;

namespace {

constexpr Index height = 21, width = 37, full = 48;  // widths that fill no vector and whole ones
constexpr double m = 0.75;

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

template <class T>
void agrees_with_plain_loops(Index width) {
  Workbench bench;
  const auto gate_up = bench.normal<T>(height, 2 * width), dgate_up = bench.normal<T>(height, 2 * width);
  const auto y = bench.normal<T>(height, width), dy = bench.normal<T>(height, width);
  std::vector<double> want(height * width), slopes(2 * height * width);
  for (Index r = 0; r < height; ++r)
    for (Index f = 0; f < width; ++f) {
      const double s = m * double(gate_up(r, f)), up = double(gate_up(r, width + f)), sig = sigmoid_of(s), d = double(dy(r, f));
      want[r * width + f] = up * s * sig;
      slopes[2 * r * width + f] = d * up * sig * (1 + s * (1 - sig)) * m;
      slopes[(2 * r + 1) * width + f] = d * s * sig;
    }
  swiglu<T>(bench.dev, gate_up, m, y);
  swiglu_backward<T>(bench.dev, dy, gate_up, m, dgate_up);
  EXPECT_LE(difference(numbers(y), want), tolerance<T>);
  EXPECT_LE(difference(numbers(dgate_up), slopes), tolerance<T>);
}

}  // namespace

TEST(swiglu, agrees_with_plain_loops) {
  for (const Index columns : {width, full}) {
    agrees_with_plain_loops<double>(columns);
    agrees_with_plain_loops<float>(columns);
    agrees_with_plain_loops<bf16>(columns);
  }
}

TEST(swiglu, gradients_are_slopes) {
  Workbench bench;
  const auto gate_up = bench.normal<double>(5, 14), dgate_up = bench.zeros<double>(5, 14);
  const auto y = bench.zeros<double>(5, 7), dy = bench.normal<double>(5, 7);
  const auto loss = [&] {
    swiglu<double>(bench.dev, gate_up, m, y);
    return dot(numbers(y), numbers(dy));
  };
  swiglu_backward<double>(bench.dev, dy, gate_up, m, dgate_up);
  EXPECT_LE(difference(numbers(dgate_up), slope(flat(gate_up), loss)), 1e-9);
}

// A gate far below zero shuts, one far above lets the other half through.
TEST(swiglu, extreme_gates_stay_finite) {
  Workbench bench;
  const auto gate_up = bench.normal<float>(2, 32), y = bench.zeros<float>(2, 16), dgate_up = bench.zeros<float>(2, 32);
  for (Index f = 0; f < 16; ++f) gate_up(0, f) = -1e4f * float(f + 1), gate_up(1, f) = 1e4f * float(f + 1);
  swiglu<float>(bench.dev, gate_up, 1, y);
  swiglu_backward<float>(bench.dev, y, gate_up, 1, dgate_up);
  for (Index f = 0; f < 16; ++f) {
    EXPECT_EQ(y(0, f), 0);
    EXPECT_EQ(y(1, f), gate_up(1, f) * gate_up(1, 16 + f));
  }
  for (const double v : numbers(dgate_up)) EXPECT_TRUE(std::isfinite(v));
}
