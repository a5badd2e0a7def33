// SPDX-License-Identifier: BSD-3-Clause
// Contribution of a chunk's tokens to the state, head by head:  L = sum_s exp(s_Q - s_s) u_s B_s' = (exp(s_Q - s) U)' B
#include "kernels/kokkos/ssd_group.hpp"

namespace gyr::scan {

template <class T, class P>
void chunk_state(Device& dev, const Group<T, P>& k, double beta, Matrix<Acc<T>> leaving) {
  using A = Acc<T>;
  Scope scope(dev.scratch);
  const Matrix<P> u_decayed = dev.scratch.tensor<P>(k.tokens, k.channels());
  const double elements = double(k.tokens) * k.channels();
  if (const auto run = dev.launch("ssd", 2.0 * elements, double(sizeof(T) + sizeof(P)) * elements))
    for_rows(
        dev, "ssd_to_end", k.tokens, KOKKOS_LAMBDA(const Index l) {
          for (Index r = 0; r < k.heads; ++r) {
            const A end = k.decay.to_end(k.first_head + r, l), dt = k.dt(k.chunk.first + l, k.first_head + r);
            const T* const from = k.x.row(l) + r * k.head_dim;
            P* const to = u_decayed.row(l) + r * k.head_dim;
#pragma GCC ivdep
            for (Index p = 0; p < k.head_dim; ++p) to[p] = P(dt * A(from[p]) * end);
          }
        });
  matmul<P>(dev, MatrixOp::transpose, u_decayed, MatrixOp::none, k.b, leaving, 1, beta);
}

namespace {

// u = dt x,  du *= exp(s_Q - s),  F = u . du per token and head,  u_decayed = exp(s_Q - s) u
template <class T, class P>
void decay_to_end_backward(Device& dev, const Group<T, P>& k, const GroupGradient<P>& g, Matrix<P> u_decayed) {
  using A = Acc<T>;
  const double elements = double(k.tokens) * k.channels();
  const auto run = dev.launch("ssd_backward", 5.0 * elements, elements * (sizeof(T) + 2 * sizeof(P) + 2 * sizeof(A)));
  if (!run) return;
  const Index R = k.heads, width = k.head_dim;
  for_rows(
      dev, "ssd_to_end_backward", k.tokens, KOKKOS_LAMBDA(const Index l) {
        for (Index r = 0; r < R; ++r) {
          const A end = k.decay.to_end(k.first_head + r, l), dt = k.dt(k.chunk.first + l, k.first_head + r);
          const T* const xs = k.x.row(l) + r * width;
          P *const us = g.u.row(l) + r * width, *const decayed = u_decayed.row(l) + r * width;
          A* const dus = g.du.row(l) + r * width;
          A sum = 0;
#pragma GCC ivdep
          for (Index p = 0; p < width; ++p) {
            const A u = dt * A(xs[p]);
            dus[p] *= end;
            sum += u * dus[p];
            us[p] = P(u);
            decayed[p] = P(end * u);
          }
          g.outflow(r, l) = sum;
        }
      });
}

// Computes J = exp(s_Q) S . dS, one summand per channel.
template <class T, class P>
void decay_backward(Device& dev, const Group<T, P>& k, Matrix<const Acc<T>> entering, Matrix<const Acc<T>> dleaving, Tensor1<Acc<T>> through) {
  using A = Acc<T>;
  const double elements = double(k.channels()) * k.state_size();
  const auto run = dev.launch("ssd_backward", 2.0 * elements, 2.0 * sizeof(A) * elements);
  if (!run) return;
  const auto over = k.over();
  for_rows(
      dev, "ssd_through", k.channels(), KOKKOS_LAMBDA(const Index i) {
        const A *const s = entering.row(i), *const ds = dleaving.row(i);
        A sum = 0;
        for (Index j = 0; j < entering.columns; ++j) sum += s[j] * ds[j];
        through(i) = sum * over(i / k.head_dim, 0);
      });
}

}  // namespace

// With dS the gradient of the state that leaves the chunk and S the state that entered:
//   dU = exp(s_Q - s) B dS',   dB = exp(s_Q - s) U dS,   F_s = exp(s_Q - s_s) U_s . (dS B_s),   J = exp(s_Q) S . dS
template <class T, class P>
void chunk_state_backward(Device& dev, const Group<T, P>& k, Matrix<const Acc<T>> entering, Matrix<const Acc<T>> dleaving,
                          const GroupGradient<P>& g) {
  Scope scope(dev.scratch);
  const Matrix<P> u_decayed = dev.scratch.tensor<P>(k.tokens, k.channels());
  const Matrix<const P> dstate = operand<P>(dev, dleaving);
  matmul<P>(dev, MatrixOp::none, k.b, MatrixOp::transpose, dstate, g.du);
  decay_to_end_backward<T, P>(dev, k, g, u_decayed);
  matmul<P>(dev, MatrixOp::none, u_decayed, MatrixOp::none, dstate, g.b);
  decay_backward<T, P>(dev, k, entering, dleaving, g.through);
}

#define GYR_SSD(T, P)                                                                   \
  template void chunk_state<T, P>(Device&, const Group<T, P>&, double, Matrix<Acc<T>>); \
  template void chunk_state_backward<T, P>(Device&, const Group<T, P>&, Matrix<const Acc<T>>, Matrix<const Acc<T>>, const GroupGradient<P>&);
GYR_SSD(double, double)
GYR_SSD(float, float)
GYR_SSD(bf16, float)
GYR_SSD(bf16, bf16)
#undef GYR_SSD

}  // namespace gyr::scan
