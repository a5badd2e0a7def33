// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/gemm_choice/gemm_times.hpp"

#include <algorithm>
#include <limits>

#include "kernels/ops/any_tensor.hpp"
#include "kernels/ops/elementwise.hpp"
#include "kernels/ops/gemm.hpp"
#include "src/base/stopwatch.hpp"

namespace gyr {

namespace {

constexpr double long_enough = 5e-3;  // minimum seconds of timed repetitions per GEMM shape
constexpr int least_times = 3;

// Operands and result of a GEMM, with the strides of its shape.
template <class T, class S>
struct Operands {
  Matrix<T> a, b;
  Matrix<S> c;

  Operands(Arena& memory, const GemmShape& s)
      : a(made<T>(memory, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.stride_a)),
        b(made<T>(memory, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.stride_b)), c(made<S>(memory, s.m, s.n, s.stride_c)) {}
  template <class X>
  static Matrix<X> made(Arena& memory, Index rows, Index columns, Index stride) {
    return {memory.tensor<X>(rows * stride).data(), rows, columns, stride};
  }
  template <class X>
  static void fill_in(Device& dev, const Matrix<X>& x) {
    fill<X>(dev, Tensor1<X>(x.data, x.rows * x.stride), 0.01);
  }
  void multiply(Device& dev, const GemmShape& s) const {
    const auto op = [](bool transpose) { return transpose ? MatrixOp::transpose : MatrixOp::none; };
    gemm<T, S>(dev, op(s.transpose_a), Matrix<const T>(a), op(s.transpose_b), Matrix<const T>(b), c, 1, s.adds ? 1 : 0);
  }
};

template <class T, class S>
double seconds_of(const GemmShape& s, GemmLibrary library) {
  Device dry(true, 0);
  dry.library = library;
  Arena counted = Arena::dry_run(Memory::activations);
  Operands<T, S>(counted, s).multiply(dry, s);
  Device dev(false, dry.scratch.high_water());
  dev.library = library;
  Arena memory(Memory::activations, counted.high_water());
  const Operands<T, S> operands(memory, s);
  operands.fill_in(dev, operands.a), operands.fill_in(dev, operands.b), operands.fill_in(dev, operands.c);
  operands.multiply(dev, s);  // untimed first call: compiles the kernel and touches all memory
  dev.fence();
  double best = std::numeric_limits<double>::infinity(), all = 0;
  for (int i = 0; i < least_times || all < long_enough; ++i) {
    double seconds = 0;
    {
      const Stopwatch watch(seconds);
      operands.multiply(dev, s);
      dev.fence();
    }
    best = std::min(best, seconds), all += seconds;
  }
  return best;
}

double seconds_of(const GemmShape& s, GemmLibrary library) {
  return with_type(s.in, [&]<class T>(std::type_identity<T>) {
    if constexpr (!std::is_same_v<T, Acc<T>>)
      if (s.out != s.in) return seconds_of<T, Acc<T>>(s, library);
    return seconds_of<T, T>(s, library);
  });
}

}  // namespace

std::vector<GemmTime> time_gemms(const GemmCounts& counts, const std::function<void(std::size_t)>& done) {
  std::vector<GemmTime> times;
  const Device chooses(true, 0);
  const std::vector<NamedLibrary> libraries = gemm_libraries();
  for (const auto& [shape, calls] : counts) {
    if (shape.m == 0 || shape.n == 0 || shape.k == 0) continue;
    GemmTime time{shape, calls, {}, 0};
    for (const NamedLibrary& each : libraries) {
      if (each.library == library_of(chooses, shape)) time.chosen = time.seconds.size();
      time.seconds.push_back(seconds_of(shape, each.library));
    }
    times.push_back(std::move(time));
    if (done) done(times.size());
  }
  return times;
}

}  // namespace gyr
