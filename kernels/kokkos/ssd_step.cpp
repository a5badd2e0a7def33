// SPDX-License-Identifier: BSD-3-Clause
// Recurrence of a single token. Each state is read and written once.
#include "kernels/base/instances.hpp"
#include "kernels/kokkos/ssd_group.hpp"
#include "kernels/ops/ssd_chunk.hpp"

namespace gyr::backend {

namespace {

constexpr Index side = 16;  // number of parallel partial sums of a row

// state = decay state + u b. Returns the dot product of the new state and c.
template <class A>
KOKKOS_INLINE_FUNCTION A step_row(A* state, A decay, A u, const A* b, const A* c, Index n) {
  A sums[side] = {};
  Index k = 0;
  for (; k + side <= n; k += side)
    for (Index i = 0; i < side; ++i) {
      state[k + i] = decay * state[k + i] + u * b[k + i];
      sums[i] += state[k + i] * c[k + i];
    }
  for (Index i = 0; i < n - k; ++i) {
    state[k + i] = decay * state[k + i] + u * b[k + i];
    sums[i] += state[k + i] * c[k + i];
  }
  for (Index half = side / 2; half > 0; half /= 2)
    for (Index i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

template <class T>
Tensor2<Acc<T>> widened(Device& dev, Matrix<const T> x) {
  const auto wide = dev.scratch.tensor<Acc<T>>(x.rows, x.columns);
  if (!dev.dry_run())
    for_rows(
        dev, "ssd_widened", x.rows, KOKKOS_LAMBDA(const Index r) {
          for (Index c = 0; c < x.columns; ++c) wide(r, c) = Acc<T>(x(r, c));
        });
  return wide;
}

}  // namespace

template <class T>
void ssd_step(Device& dev, const SsdShape& s, const SsdInput<T>& in, const SsdWeights<Acc<T>>& w, Tensor2<Acc<T>> state, Tensor2<T> y) {
  using A = Acc<T>;
  const Index P = s.head_dim, N = s.state_size, H = s.num_heads, per_group = H / s.num_groups;
  const auto dt = dev.scratch.tensor<A>(s.batch, H);
  scan::time_steps<T>(dev, s, in.dt_raw, w.dt_bias, dt);
  const auto b = widened(dev, in.b), c = widened(dev, in.c);
  const auto run = dev.launch("ssd", 5.0 * s.batch * H * P * N, 2.0 * sizeof(A) * s.batch * H * P * N);
  if (!run) return;
  const Matrix<const T> x = in.x;
  for_rows(
      dev, "ssd_step", s.batch * H, KOKKOS_LAMBDA(const Index i) {
        const Index sequence = i / H, h = i % H;
        const A step = dt(sequence, h), decay = std::exp(-std::exp(w.a_log(h)) * step);
        const A *const b_row = &b(sequence, h / per_group * N), *const c_row = &c(sequence, h / per_group * N);
        for (Index p = 0; p < P; ++p) {
          const A value = A(x(sequence, h * P + p));
          y(sequence, h * P + p) = T(w.d(h) * value + step_row(&state(sequence, (h * P + p) * N), decay, step * value, b_row, c_row, N));
        }
      });
}

GYR_SCALARS(GYR_SSD_STEP)

}  // namespace gyr::backend
