// SPDX-License-Identifier: BSD-3-Clause
// What the tokens of a chunk add to the state, head by head:  L = sum_s exp(s_Q - s_s) u_s B_s' = (exp(s_Q - s) U)' B
#include "kernels/kokkos/ssd_group.hpp"

namespace gyr::scan {

template <class T>
void chunk_state(Device& dev, const Group<T>& k, Matrix<Acc<T>> u, double beta, Matrix<Acc<T>> leaving) {
  using A = Acc<T>;
  const double elements = double(k.tokens) * k.channels();
  if (const auto run = dev.launch("ssd", elements, 2.0 * sizeof(A) * elements))
    for_rows(
        dev, "ssd_to_end", k.tokens, KOKKOS_LAMBDA(const Index l) {
          for (Index r = 0; r < k.heads; ++r) {
            const A end = k.decay.to_end(k.first_head + r, l);
            A* const us = u.row(l) + r * k.head_dim;
            for (Index p = 0; p < k.head_dim; ++p) us[p] *= end;
          }
        });
  product<A>(dev, MatrixOp::transpose, u, MatrixOp::none, k.b, leaving, 1, beta);
}

namespace {

// u = dt x,  du *= exp(s_Q - s),  F = u . du by token and head,  u_decayed = exp(s_Q - s) u
template <class T>
void decay_to_end_backward(Device& dev, const Group<T>& k, const GroupGradient<Acc<T>>& g, Matrix<Acc<T>> u_decayed) {
  using A = Acc<T>;
  const double elements = double(k.tokens) * k.channels();
  const auto run = dev.launch("ssd_backward", 5.0 * elements, elements * (sizeof(T) + 5 * sizeof(A)));
  if (!run) return;
  const Index R = k.heads, P = k.head_dim;
  for_rows(
      dev, "ssd_to_end_backward", k.tokens, KOKKOS_LAMBDA(const Index l) {
        for (Index r = 0; r < R; ++r) {
          const A end = k.decay.to_end(k.first_head + r, l), dt = k.dt(k.chunk.first + l, k.first_head + r);
          const T* const xs = k.x.row(l) + r * P;
          A *const us = g.u.row(l) + r * P, *const dus = g.du.row(l) + r * P, *const decayed = u_decayed.row(l) + r * P;
          A sum = 0;
#pragma GCC ivdep
          for (Index p = 0; p < P; ++p) {
            us[p] = dt * A(xs[p]);
            dus[p] *= end;
            sum += us[p] * dus[p];
            decayed[p] = end * us[p];
          }
          g.outflow(r, l) = sum;
        }
      });
}

// J = exp(s_Q) S . dS, channel by channel
template <class T>
void decay_backward(Device& dev, const Group<T>& k, Matrix<const Acc<T>> entering, Matrix<const Acc<T>> dleaving, Tensor1<Acc<T>> through) {
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
template <class T>
void chunk_state_backward(Device& dev, const Group<T>& k, Matrix<const Acc<T>> entering, Matrix<const Acc<T>> dleaving,
                          const GroupGradient<Acc<T>>& g) {
  using A = Acc<T>;
  Scope scope(dev.scratch);
  const Matrix<A> u_decayed = dev.scratch.tensor<A>(k.tokens, k.channels());
  product<A>(dev, MatrixOp::none, k.b, MatrixOp::transpose, dleaving, g.du);
  decay_to_end_backward<T>(dev, k, g, u_decayed);
  product<A>(dev, MatrixOp::none, u_decayed, MatrixOp::none, dleaving, g.b);
  decay_backward<T>(dev, k, entering, dleaving, g.through);
}

#define GYR_SSD(T)                                                                                \
  template void chunk_state<T>(Device&, const Group<T>&, Matrix<Acc<T>>, double, Matrix<Acc<T>>); \
  template void chunk_state_backward<T>(Device&, const Group<T>&, Matrix<const Acc<T>>, Matrix<const Acc<T>>, const GroupGradient<Acc<T>>&);
GYR_SSD(double)
GYR_SSD(float)
GYR_SSD(bf16)
#undef GYR_SSD

}  // namespace gyr::scan
