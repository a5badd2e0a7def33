// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/gemm.hpp"

#include <functional>
#include <random>

#include "regression/support/values.hpp"

namespace gyr::testing::gemm_suite {

namespace {

template <class T, class S>
void agrees_with_loops(Index M, Index K = 11, Index N = 7) {
  const double alpha = 0.75;
  for (const MatrixOp op_a : {MatrixOp::none, MatrixOp::transpose})
    for (const MatrixOp op_b : {MatrixOp::none, MatrixOp::transpose})
      for (const double beta : {0.0, 1.0, -0.5}) {
        const bool ta = op_a == MatrixOp::transpose, tb = op_b == MatrixOp::transpose;
        const Values a = rounded<T>(random_values(M * K, 1)), b = rounded<T>(random_values(K * N, 2)), c = rounded<S>(random_values(M * N, 3));
        Values expected(M * N);
        for (Index m = 0; m < M; ++m)
          for (Index n = 0; n < N; ++n) {
            double sum = 0;
            for (Index k = 0; k < K; ++k) sum += a[ta ? k * M + m : m * K + k] * b[tb ? n * K + k : k * N + n];
            expected[m * N + n] = alpha * sum + (beta == 0 ? 0 : beta * c[m * N + n]);
          }
        Block<T> A(ta ? K : M, ta ? M : K, a, 3), B(tb ? N : K, tb ? K : N, b, 1);
        for (const GemmLibrary library : {GemmLibrary::automatic, GemmLibrary::cblas, GemmLibrary::onednn}) {
          if (!available(library)) continue;
          Block<S> C(M, N, beta == 0 ? Values{} : c, 2);  // with beta = 0, C is not read: it holds NaN
          Device dev(false, 1 << 20), dry(true, 0);
          dev.library = dry.library = library;
          gemm<T, S>(dev, op_a, A.template matrix<const T>(), op_b, B.template matrix<const T>(), C.matrix(), alpha, beta);
          expect_near(C.values(), expected, tolerance_of<S>());
          if (::testing::Test::HasFailure()) FAIL() << M << " x " << N << " x " << K << ", beta " << beta << ", library " << int(library);
          EXPECT_EQ(dev.flops(), 2 * M * N * K);

          gemm<T, S>(dry, op_a, A.template matrix<const T>(), op_b, B.template matrix<const T>(), C.matrix(), alpha, beta);
          EXPECT_EQ(dry.flops(), dev.flops());
          EXPECT_EQ(dry.scratch.high_water(), dev.scratch.high_water());
          ASSERT_EQ(dry.gemm_counts.size(), 1u);
          const GemmShape& shape = dry.gemm_counts.begin()->first;
          EXPECT_EQ(2 * shape.m * shape.n * shape.k, dev.flops());
        }
      }
}

}  // namespace

TEST(gemm, matches_reference_loops) {
  for (const Index rows : {9, 5, 1}) {  // few rows use another kernel, and one row of double a third one
    agrees_with_loops<double, double>(rows);
    agrees_with_loops<float, float>(rows);
    agrees_with_loops<bf16, bf16>(rows);
    agrees_with_loops<bf16, float>(rows);
  }
}

// Random extents, so that the automatic choice selects each library for some of them.
TEST(gemm, matches_reference_loops_at_any_extent) {
  std::mt19937 random(5);
  const auto extent = [&] { return Index(random() % 3 == 0 ? 1 + random() % 200 : 1 + random() % 40); };
  for (int draw = 0; draw < 30; ++draw) {
    const Index M = extent(), K = extent(), N = extent();
    agrees_with_loops<float, float>(M, K, N);
    agrees_with_loops<bf16, bf16>(M, K, N);
    agrees_with_loops<bf16, float>(M, K, N);
  }
}

// More terms than are summed in parallel, with and without a remainder.
TEST(gemm, few_rows_match_reference_loops) {
  for (const Index terms : {1, 31, 32, 64, 65, 200})
    for (Index rows = 1; rows <= 8; ++rows) {
      agrees_with_loops<bf16, bf16>(rows, terms);
      agrees_with_loops<bf16, float>(rows, terms);
      agrees_with_loops<float, float>(rows, terms);
    }
}

// In decoding, each element has the same bits for any number of sequences in the batch and any sharding of the weight's
// rows.
template <class T>
void rows_do_not_depend_on_each_other(const std::function<void(Device&, Matrix<const T>, Index first, Matrix<float>)>& multiply, Index N, Index K) {
  const Index R = 8;
  Block<T> X(R, K, rounded<T>(random_values(R * K, 1)));
  Block<float> all(R, N), one(1, 3);
  Device dev(false, 1 << 20);
  multiply(dev, X.matrix(), 0, all.matrix());
  for (Index r = 0; r < R; ++r) {
    multiply(dev, X.matrix().block(r, 1, 0, K), 4, one.matrix());
    for (Index n = 0; n < 3; ++n) EXPECT_EQ(one.values()[n], all.values()[r * N + 4 + n]) << r << ' ' << n;
  }
}

TEST(gemm, few_rows_do_not_depend_on_each_other) {
  const Index N = 10, K = 200;
  const Values w = random_values(N * K, 2);
  Block<bf16> narrow(N, K, rounded<bf16>(w));
  rows_do_not_depend_on_each_other<bf16>([&](Device& dev, Matrix<const bf16> x, Index first,
                                             Matrix<float> y) { linear<bf16, float>(dev, x, narrow.matrix().block(first, y.columns, 0, K), y); },
                                         N, K);
  Block<float> wide(N, K, rounded<float>(w));
  rows_do_not_depend_on_each_other<float>([&](Device& dev, Matrix<const float> x, Index first,
                                              Matrix<float> y) { linear<float>(dev, x, wide.matrix().block(first, y.columns, 0, K), y); },
                                          N, K);
}

// y = x w', dx = dy w, dw += dy' x:  <dy, x w'> = <dx, x> = <dw, w>
TEST(gemm, linear_forward_and_backward_are_adjoint) {
  const Index R = 6, N = 4, K = 9;
  const Values x = random_values(R * K, 1), w = random_values(N * K, 2), dy = random_values(R * N, 3);
  Block<double> X(R, K, x), W(N, K, w), DY(R, N, dy), Y(R, N), DX(R, K), DW(N, K, Values(N * K, 1));
  Device dev(false, 1 << 20);
  linear<double>(dev, X.matrix(), W.matrix(), Y.matrix());
  linear_backward_input<double>(dev, DY.matrix(), W.matrix(), DX.matrix());
  linear_backward_weight<double>(dev, DY.matrix(), X.matrix(), DW.matrix());
  double of_ones = 0;
  for (const double v : w) of_ones += v;
  EXPECT_NEAR(dot(DX.values(), x), dot(Y.values(), dy), 1e-12);
  EXPECT_NEAR(dot(DW.values(), w) - of_ones, dot(Y.values(), dy), 1e-12);
}

TEST(gemm, refuses_mismatched_shapes) {
  Block<double> a(2, 3, random_values(6, 1)), b(4, 2, random_values(8, 2)), c(2, 2);
  Device dev(false, 1 << 20);
  EXPECT_THROW((gemm<double>(dev, MatrixOp::none, a.matrix(), MatrixOp::none, b.matrix(), c.matrix())), Error);
}

}  // namespace gyr::testing::gemm_suite
