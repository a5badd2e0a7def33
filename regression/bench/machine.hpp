// SPDX-License-Identifier: BSD-3-Clause
// Measures the peak rates of this machine around every kernel benchmark, and reports the kernel's rates relative to them:
//   GFLOP/s, of_sgemm   flops per second, and as a fraction of the rate of a 1024^3 float GEMM
//   GB/s, of_copy       bytes per second that must be read and written, and as a fraction of the rate of y = a x from memory
// Seconds are processor time of all threads, which other load on the machine disturbs least.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>

#include "kernels/ops/gemm.hpp"

namespace gyr::bench {

template <class Body>
double seconds_of(const Body& body) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
  };
  const double start = now();
  body();
  return now() - start;
}

template <class Body>
double least_seconds(const Body& body) {
  constexpr int windows = 7;
  double least = seconds_of(body);
  for (int i = 1; i < windows; ++i) least = std::min(least, seconds_of(body));
  return least;
}

// Peak rates of the machine. The measurement uses 140 MB of the arena.
struct Machine {
  double flops = 0, bytes = 0;  // flops per second, bytes per second

  static Machine measured(Device& dev, Arena& arena) {
    constexpr Index n = 1024, m = Index(1) << 24;
    Scope scope(arena);
    const auto filled = [&](Index size) {
      const auto x = arena.tensor<float>(size);
      std::fill_n(x.data(), size, 0.5f);
      return x.data();
    };
    const float *const a = filled(n * n), *const b = filled(n * n), *const from = filled(m);
    float *const c = filled(n * n), *const to = filled(m);
    const double gemm_seconds = least_seconds([&] {
      gemm<float>(dev, MatrixOp::none, Matrix<const float>(a, n, n, n), MatrixOp::none, Matrix<const float>(b, n, n, n), Matrix<float>(c, n, n, n));
    });
    float factor = 0.5f;  // opaque to the compiler, so that it cannot replace the loop by a library call
    benchmark::DoNotOptimize(factor);
    const double copy = least_seconds([&] {
#pragma GCC ivdep
      for (Index i = 0; i < m; ++i) to[i] = factor * from[i];
      benchmark::ClobberMemory();
    });
    return {2.0 * n * n * n / gemm_seconds, 2.0 * sizeof(float) * m / copy};
  }
};

inline Machine better(const Machine& a, const Machine& b) { return {std::max(a.flops, b.flops), std::max(a.bytes, b.bytes)}; }

inline void report(benchmark::State& state, const Machine& machine, double flops, double bytes, double seconds) {
  state.counters["GFLOP/s"] = 1e-9 * flops / seconds;
  state.counters["of_sgemm"] = flops / seconds / machine.flops;
  state.counters["GB/s"] = 1e-9 * bytes / seconds;
  state.counters["of_copy"] = bytes / seconds / machine.bytes;
}

}  // namespace gyr::bench
