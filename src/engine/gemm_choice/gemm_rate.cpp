// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/gemm_choice/gemm_rate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/device/random.hpp"
#include "kernels/ops/any_tensor.hpp"
#include "kernels/ops/gemm.hpp"
#include "kernels/ops/host_values.hpp"
#include "src/base/stopwatch.hpp"

namespace gyr {

namespace {

// Fills x with random values. A GPU reaches a higher rate on equal values, which training never has.
template <class A>
void fill_in(const Tensor1<A>& x) {
  constexpr Index period = 4099;
  const Stream stream(1, "rate of products");
  HostValues<A> values(x);
  for (Index i = 0; i < Index(x.span()); ++i) values(i) = i < period ? A(Acc<A>(stream.uniform(i) - 0.5)) : values(i - period);
  values.put();
}

// Shortest time in seconds of `calls` GEMMs of n x n matrices, out of four trials.
template <class A>
double seconds_of(Index n, int calls) {
  Device dry(true, 0);
  gemm<A, A>(dry, MatrixOp::none, Matrix<const A>(nullptr, n, n, n), MatrixOp::transpose, Matrix<const A>(nullptr, n, n, n),
             Matrix<A>(nullptr, n, n, n));
  Device dev(false, 4 * n * n * Index(sizeof(A)) + dry.scratch.high_water());
  auto a = dev.scratch.tensor<A>(n, n), b = dev.scratch.tensor<A>(n, n), c = dev.scratch.tensor<A>(n, n);
  fill_in<A>(flat(a)), fill_in<A>(flat(b));
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 4; ++i) {
    double seconds = 0;
    {
      const Stopwatch watch(seconds);
      for (int call = 0; call < calls; ++call) gemm<A, A>(dev, MatrixOp::none, a, MatrixOp::transpose, b, c);
      dev.fence();
    }
    best = std::min(best, seconds);
  }
  return best;
}

double operations(Index n) { return 2.0 * double(n * n * n); }

// Rate for square matrices of a size that suits the processor. Small ones do not fill a GPU; large ones take a host too
// long; a slow or emulated device gets the smallest.
template <class A>
double measured() {
  constexpr Index least = 192, small = 768, most = 4096, grain = 256;
  // thresholds in seconds: aimed-at duration of one GEMM; duration above which the rate is taken from the smallest size
  constexpr double soon = 2e-3, late = 0.1;
  constexpr int calls = 4;  // GEMMs per measurement, which hide the launch overhead
  const double first = seconds_of<A>(least, 1);
  if (first * operations(small) / operations(least) > late) return operations(least) / first;
  const double seconds = seconds_of<A>(small, 1);
  const Index n = Index(std::min(double(most), double(small) * std::cbrt(soon / seconds))) / grain * grain;
  if (n <= small) return operations(small) / seconds;
  return operations(n) * calls / seconds_of<A>(n, calls);
}

}  // namespace

double gemm_rate(DType precision) {
  return with_type(precision, []<class S>(std::type_identity<S>) { return measured<S>(); });
}

}  // namespace gyr
