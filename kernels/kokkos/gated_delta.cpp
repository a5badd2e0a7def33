// SPDX-License-Identifier: BSD-3-Clause
// Gated delta rule on the host. Each lane computes the groups of heads of some sequences, chunk by chunk.
// kernels/ops/delta/gated_delta.hpp has the formulas.
#include "kernels/ops/delta/gated_delta.hpp"

#include "kernels/base/instances.hpp"
#include "kernels/kokkos/lanes.hpp"

namespace gyr::backend {

namespace {

// One lane as a team. Every row is computed by one thread.
template <class A>
struct Lane {
  Device& dev;
  const char* kernel;

  template <class F>
  void rows(Index count, double flops, const F& f) const {
    if (const auto run = dev.launch(kernel, flops * double(count), 0)) for_rows(dev, kernel, count, f);
  }
  template <class F>
  void once(double flops, const F& f) const {
    if (const auto run = dev.launch(kernel, flops, 0)) f();
  }
  // Strips are as wide as a few vector registers, so that a row of a strip stays in the first-level cache.
  template <class F>
  void strips(Index count, double flops, const F& f) const {
    constexpr Index width = 64;
    if (const auto run = dev.launch(kernel, flops * double(count), 0))
      for_rows(dev, kernel, ceil_div(count, width), [=](Index i) { f(i * width, least(width, count - i * width)); });
  }
  template <class F>
  void each(Index count, const F& f) const {
#pragma GCC ivdep
    for (Index c = 0; c < count; ++c) f(c);
  }
  template <class S, class F>
  S sum(Index count, const F& f) const {
    S total = 0;
    for (Index c = 0; c < count; ++c) total += f(c);
    return total;
  }
  bool leads() const { return true; }
  template <class F>
  void repeat(Index count, const F& f) const {
    for_equal(dev, count, f);
  }
  void gemm(MatrixOp op_a, const Matrix<const A>& a, MatrixOp op_b, const Matrix<const A>& b, const Matrix<A>& c, double alpha, double beta) const {
    gyr::gemm<A, A>(dev, op_a, a, op_b, b, c, alpha, beta, "gated_delta_gemm");
  }
};

// Calls body(lane, sequence, group, memory, wide) for all groups of all sequences.
template <class A, class Body>
void for_groups(Device& dev, const char* kernel, const DeltaShape& s, bool backward, const Body& body) {
  for_lanes(dev, kernel, s.batch * s.num_groups, [&](Device& lane, Index i) {
    Scope scope(lane.scratch);
    const auto memory = lane.scratch.tensor<A>(delta::Work<A>::elements(s, backward));
    const auto wide = lane.scratch.tensor<double>(delta::Work<A>::doubles(s));
    body(Lane<A>{lane, kernel}, i / s.num_groups, i % s.num_groups, memory.data(), wide.data());
  });
}

}  // namespace

template <class T>
void gated_delta(Device& dev, const delta::Task<T>& t) {
  for_groups<Acc<T>>(dev, "gated_delta", t.s, false,
                     [&](const auto& lane, Index b, Index g, Acc<T>* memory, double* wide) { delta::group_forward(lane, t, b, g, memory, wide); });
}

template <class T>
void gated_delta_backward(Device& dev, const delta::Task<T>& t) {
  using A = Acc<T>;
  for_groups<A>(dev, "gated_delta_backward", t.s, true,
                [&](const auto& lane, Index b, Index g, A* memory, double* wide) { delta::group_backward(lane, t, b, g, memory, wide); });
  if (!dev.dry_run() && t.has_inputs) for_rows(dev, "gated_delta_backward", t.s.num_heads, [=](Index h) { delta::add_weight_gradients(t, h); });
}

GYR_SCALARS(GYR_GATED_DELTA)

}  // namespace gyr::backend
