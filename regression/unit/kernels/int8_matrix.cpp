// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/int8_matrix.hpp"

#include <random>

#include "kernels/ops/gemm.hpp"
#include "regression/support/values.hpp"

namespace gyr::testing::int8_matrix_suite {

namespace {

// An Int8Matrix with its own memory. operator() returns a dequantized element.
struct Owned {
  std::vector<std::int8_t> values;
  std::vector<float> scales;
  Int8Matrix matrix;

  Owned(Index rows, Index columns)
      : values(rows * columns), scales(rows * Int8Matrix::blocks(columns)), matrix{values.data(), scales.data(), rows, columns} {}
  double operator()(Index r, Index c) const {
    return double(values[r * matrix.columns + c]) * double(scales[r * matrix.blocks() + c / Int8Matrix::block]);
  }
};

template <class T>
Owned quantized(const Values& w, Index rows, Index columns) {
  Owned q(rows, columns);
  Block<T> W(rows, columns, w, 2);
  Device dev(false, 0);
  quantize<T>(dev, W.matrix(), q.matrix);
  return q;
}

// Compares y = alpha x w' + beta y with plain loops, where w is a quantized matrix.
template <class T, class S>
void expect_gemm(Index R, Index N, Index K, double tolerance) {
  const Values x = rounded<T>(random_values(R * K, 1)), before = rounded<S>(random_values(R * N, 3));
  const Owned q = quantized<float>(random_values(N * K, 2), N, K);
  for (const double beta : {0.0, 1.0, -0.5}) {
    Values expected(R * N);
    double largest = 0;
    for (Index r = 0; r < R; ++r)
      for (Index n = 0; n < N; ++n) {
        double sum = 0;
        for (Index k = 0; k < K; ++k) sum += x[r * K + k] * q(n, k);
        expected[r * N + n] = 0.75 * sum + (beta == 0 ? 0 : beta * before[r * N + n]);
        largest = std::max(largest, std::abs(expected[r * N + n]));
      }
    Block<T> X(R, K, x, 3);
    Block<S> Y(R, N, beta == 0 ? Values{} : before, 2);
    Device dry(true, 0);
    linear<T, S>(dry, X.matrix(), q.matrix, Y.matrix(), 0.75, beta);
    Device dev(false, dry.scratch.high_water());
    linear<T, S>(dev, X.matrix(), q.matrix, Y.matrix(), 0.75, beta);
    EXPECT_EQ(dev.flops(), 2 * R * N * K);
    EXPECT_EQ(dry.flops(), dev.flops());
    const Values y = Y.values();
    for (Index i = 0; i < R * N; ++i)
      ASSERT_NEAR(y[i], expected[i], tolerance * largest) << R << " x " << N << " x " << K << ", beta " << beta << ", element " << i;
  }
}

}  // namespace

TEST(int8_matrix, quantization_error_is_at_most_half_a_step) {
  std::mt19937 random(3);
  for (int draw = 0; draw < 20; ++draw) {
    const Index rows = 1 + random() % 5, columns = 1 + random() % 300;
    const Values w = rounded<bf16>(random_values(rows * columns, 7 + draw));
    const Owned q = quantized<bf16>(w, rows, columns);
    for (Index r = 0; r < rows; ++r)
      for (Index c = 0; c < columns; ++c) {
        const Index first = c / 64 * 64, last = std::min(first + 64, columns);
        double largest = 0;
        for (Index k = first; k < last; ++k) largest = std::max(largest, std::abs(w[r * columns + k]));
        EXPECT_LE(std::abs(q(r, c) - w[r * columns + c]), largest / 254 * (1 + 1e-5)) << rows << " x " << columns << " at " << r << ", " << c;
      }
  }
}

TEST(int8_matrix, quantization_keeps_zeros_and_marks_nonfinite_blocks) {
  Values w(3 * 64, 0);
  w[64 + 5] = std::numeric_limits<double>::quiet_NaN(), w[64 + 6] = 1, w[2 * 64] = std::numeric_limits<double>::infinity();
  const Owned q = quantized<float>(w, 3, 64);
  for (Index c = 0; c < 64; ++c) EXPECT_EQ(q(0, c), 0);
  EXPECT_TRUE(std::isnan(q(1, 0)));
  EXPECT_TRUE(std::isnan(q(2, 0)));
}

TEST(int8_matrix, gemm_matches_loops_over_dequantized_values) {
  std::mt19937 random(11);
  for (int draw = 0; draw < 24; ++draw) {
    const Index R = draw < 10 ? 1 + draw : 1 + random() % 20, N = random() % 4 == 0 ? 500 + random() % 600 : 1 + random() % 40,
                K = 1 + random() % 200;
    expect_gemm<double, double>(R, N, K, 1e-13);
    expect_gemm<float, float>(R, N, K, 1e-4);
    expect_gemm<bf16, float>(R, N, K, R > 8 ? 2e-2 : 1e-4);  // above 8 rows the weights are dequantized to bf16
    expect_gemm<bf16, bf16>(R, N, K, 2e-2);
  }
}

// A NaN in a row of x affects only the results of that row.
TEST(int8_matrix, nan_row_affects_only_its_own_output) {
  const Index N = 5, K = 130;
  const Owned q = quantized<float>(random_values(N * K, 2), N, K);
  Values x = rounded<float>(random_values(3 * K, 1));
  Block<float> full(3, K, x);
  x[K + 70] = std::numeric_limits<double>::quiet_NaN();
  Block<float> spoilt(3, K, x), y(3, N), z(3, N);
  Device dev(false, 1 << 16);
  linear<float, float>(dev, full.matrix(), q.matrix, y.matrix());
  linear<float, float>(dev, spoilt.matrix(), q.matrix, z.matrix());
  for (Index n = 0; n < N; ++n) {
    EXPECT_EQ(y.values()[n], z.values()[n]);
    EXPECT_TRUE(std::isnan(z.values()[N + n]));
    EXPECT_EQ(y.values()[2 * N + n], z.values()[2 * N + n]);
  }
}

}  // namespace gyr::testing::int8_matrix_suite
