// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/gemm_choice/gemm_rate.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/device/random.hpp"
#include "kernels/ops/any_tensor.hpp"
#include "kernels/ops/gemm.hpp"
#include "kernels/ops/host_values.hpp"
#include "src/base/quantity.hpp"
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

// Trials of a measurement: several time slices of a busy machine; fewer if one takes longer than `slow` seconds.
constexpr std::size_t many_trials = 12, few_trials = 4;
constexpr double slow = 0.05;

// Times in seconds of `calls` GEMMs of n x n matrices, ascending. All ranks begin each trial together. The first trial, which
// touches the memory, is not counted.
template <class A>
std::vector<double> seconds_of(Index n, int calls, const Largest& largest) {
  Device dry(true, 0);
  gemm<A, A>(dry, MatrixOp::none, Matrix<const A>(nullptr, n, n, n), MatrixOp::transpose, Matrix<const A>(nullptr, n, n, n),
             Matrix<A>(nullptr, n, n, n));
  Device dev(false, 4 * n * n * Index(sizeof(A)) + dry.scratch.high_water());
  auto a = dev.scratch.tensor<A>(n, n), b = dev.scratch.tensor<A>(n, n), c = dev.scratch.tensor<A>(n, n);
  fill_in<A>(flat(a)), fill_in<A>(flat(b));
  std::vector<double> times;
  std::size_t trials = many_trials;
  for (std::size_t i = 0; i < trials; ++i) {
    if (largest(times.empty() ? 0 : times.back()) > slow) trials = few_trials;
    double& seconds = times.emplace_back();
    {
      const Stopwatch watch(seconds);
      for (int call = 0; call < calls; ++call) gemm<A, A>(dev, MatrixOp::none, a, MatrixOp::transpose, b, c);
      dev.fence();
    }
  }
  times.erase(times.begin());
  std::sort(times.begin(), times.end());
  return times;
}

double operations(Index n) { return 2.0 * double(n * n * n); }

GemmRate rate_of(double operations, const std::vector<double>& times) { return {operations / times.front(), operations / times[times.size() / 2]}; }

// Rate for square matrices of a size that suits the processor, the same on all ranks. Small ones do not fill a GPU; large
// ones take a host too long; a slow or emulated device gets the smallest.
template <class A>
GemmRate measured(const Largest& largest) {
  constexpr Index least = 192, small = 768, most = 4096, grain = 256;
  // thresholds in seconds: aimed-at duration of one GEMM; duration above which the rate is taken from the smallest size
  constexpr double soon = 2e-3, late = 0.1;
  constexpr int calls = 4;  // GEMMs per measurement, which hide the launch overhead
  const std::vector<double> first = seconds_of<A>(least, 1, largest);
  if (largest(first.front()) * operations(small) / operations(least) > late) return rate_of(operations(least), first);
  const std::vector<double> times = seconds_of<A>(small, 1, largest);
  const Index n = Index(std::min(double(most), double(small) * std::cbrt(soon / largest(times.front())))) / grain * grain;
  if (n <= small) return rate_of(operations(small), times);
  return rate_of(operations(n) * calls, seconds_of<A>(n, calls, largest));
}

}  // namespace

GemmRate gemm_rate(DType precision, const Largest& largest) {
  return with_type(precision, [&]<class S>(std::type_identity<S>) { return measured<S>(largest); });
}

std::string uncertainty_of(const GemmRate& rate) {
  constexpr double steady = 0.9;
  if (rate.median >= steady * rate.best) return "";
  return fmt::format(
      "MFU is uncertain: it is relative to {} per rank, the fastest of the GEMMs measured at the start, but half of them reached less than {}, "
      "because other programs use the processor",
      metric_text(rate.best, "FLOP/s"), metric_text(rate.median, "FLOP/s"));
}

}  // namespace gyr
