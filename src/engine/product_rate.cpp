// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/product_rate.hpp"

#include <algorithm>
#include <chrono>

#include "kernels/any_tensor.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/gemm.hpp"
#include "src/base/stopwatch.hpp"

namespace gyr {

namespace {

template <class A>
double measured() {
  constexpr Index n = 768;
  Device dry(true, 0);
  gemm<A, A>(dry, MatrixOp::none, Matrix<const A>(nullptr, n, n, n), MatrixOp::transpose, Matrix<const A>(nullptr, n, n, n),
             Matrix<A>(nullptr, n, n, n));
  Device dev(false, 4 * n * n * Index(sizeof(A)) + dry.scratch.high_water());
  auto a = dev.scratch.tensor<A>(n, n), b = dev.scratch.tensor<A>(n, n), c = dev.scratch.tensor<A>(n, n);
  fill<A>(dev, flat(a), 0.5);
  fill<A>(dev, flat(b), 0.25);
  double best = 0;
  for (int i = 0; i < 4; ++i) {
    double seconds = 0;
    {
      const Stopwatch watch(seconds);
      gemm<A, A>(dev, MatrixOp::none, a, MatrixOp::transpose, b, c);
      dev.fence();
    }
    best = std::max(best, 2.0 * n * n * n / seconds);
  }
  return best;
}

}  // namespace

double product_rate(DType precision) {
  return with_type(precision, []<class S>(std::type_identity<S>) { return measured<S>(); });
}

}  // namespace gyr
