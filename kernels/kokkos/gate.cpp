// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels of the output gate of the SSD scan and of the gated RMSNorm. kernels/ops/gate.hpp has the formulas.
#include "kernels/ops/gate.hpp"

#include <type_traits>

#include "kernels/base/instances.hpp"
#include "kernels/base/math.hpp"
#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

template <class T>
void gate(Device& dev, Matrix<const T> y, Matrix<const T> z, Tensor2<T> out) {
  using A = Acc<T>;
  const Index rows = y.rows, channels = y.columns;
  for_teams(
      "gate", dev, rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        const T *const from = y.row(r), *const by = z.row(r);
        T* const to = out.data() + r * channels;
        each(team, channels, [=](Index e) { to[e] = T(A(from[e]) * silu(A(by[e]))); });
      });
}

template <class T>
void gate_backward(Device& dev, Tensor2<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor2<T> dy, Matrix<T> dz) {
  using A = Acc<T>;
  const Index rows = y.rows, channels = y.columns;
  for_teams(
      "gate_backward", dev, rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        const T *const d = dout.data() + r * channels, *const from = y.row(r), *const by = z.row(r);
        T *const to = dy.data() + r * channels, *const dby = dz.row(r);
        each(team, channels, [=](Index e) {
          const A v = A(by[e]), sig = sigmoid(v), o = A(d[e]);
          to[e] = T(o * v * sig);
          dby[e] = T(o * A(from[e]) * sig * (1 + v * (1 - sig)));
        });
      });
}

namespace {

// Factor by which the gate multiplies the norm.
template <GateOrder order, class A, class T>
KOKKOS_FUNCTION A gate_of(T z) {
  return order == GateOrder::none ? A(1) : silu(A(z));
}

// Calls body(order) with the order as a compile-time constant.
template <class Body>
void with_order(GateOrder order, const Body& body) {
  if (order == GateOrder::gate_first) body(std::integral_constant<GateOrder, GateOrder::gate_first>());
  else if (order == GateOrder::norm_first) body(std::integral_constant<GateOrder, GateOrder::norm_first>());
  else body(std::integral_constant<GateOrder, GateOrder::none>());
}

template <GateOrder order, class T>
void squares_of(Device& dev, NormGroups s, Matrix<const T> y, Matrix<const T> z, Tensor2<Acc<T>> squares) {
  using A = Acc<T>;
  for_teams(
      "gated_norm_squares", dev, s.rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        for (Index g = 0; g < s.groups; ++g) {
          const T *const from = y.row(r) + g * s.width, *const by = z.row(r) + g * s.width;
          const A total = sum<A>(team, s.width, [=](Index e, A& t) {
            const A v = order == GateOrder::gate_first ? A(from[e]) * silu(A(by[e])) : A(from[e]);
            t += v * v;
          });
          once(team, [&] { squares.data()[r * s.groups + g] = total; });
        }
      });
}

template <GateOrder order, class T>
void normalise(Device& dev, NormGroups s, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w, Tensor2<const Acc<T>> squares, Index width,
               double eps, Matrix<T> out) {
  using A = Acc<T>;
  for_teams(
      "gated_norm", dev, s.rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        for (Index g = 0; g < s.groups; ++g) {
          const Index first = g * s.width;
          const T *const from = y.row(r) + first, *const by = z.row(r) + first;
          const A* const weight = w.data() + first;
          T* const to = out.row(r) + first;
          const A rstd = norm_factor(squares.data()[r * s.groups + g], width, eps);
          each(team, s.width, [=](Index e) {  // the same formula for both gate orders
            const A normed = weight[e] * rstd * A(from[e]);
            to[e] = T(normed * gate_of<order, A>(by[e]));
          });
        }
      });
}

template <GateOrder order, class T>
void dots_of(Device& dev, NormGroups s, Matrix<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
             Tensor2<const Acc<T>> squares, Index width, double eps, Tensor2<Acc<T>> dots, Tensor2<Acc<T>> partial) {
  using A = Acc<T>;
  for_teams(
      "gated_norm_products", dev, partial.extent(0), KOKKOS_LAMBDA(const Team& team, Index b) {
        A* const dw = partial.data() + b * s.channels;
        for (Index g = 0; g < s.groups; ++g)  // the same loop as below, so that each thread zeroes the channels to which it adds
          each(team, s.width, [=](Index e) { dw[g * s.width + e] = 0; });
        for (Index r = b * block_rows; r < least((b + 1) * block_rows, s.rows); ++r)
          for (Index g = 0; g < s.groups; ++g) {
            const Index first = g * s.width;
            const T *const d = dout.row(r) + first, *const from = y.row(r) + first, *const by = z.row(r) + first;
            const A* const weight = w.data() + first;
            A* const sums = dw + first;
            const A rstd = norm_factor(squares.data()[r * s.groups + g], width, eps);
            const A total = sum<A>(team, s.width, [=](Index e, A& t) {
              const A product = A(d[e]) * A(from[e]) * gate_of<order, A>(by[e]) * rstd;  // dn vh, the same for both gate orders
              sums[e] += product;
              t += product * weight[e];
            });
            once(team, [&] { dots.data()[r * s.groups + g] = total; });
          }
      });
}

template <GateOrder order, class T>
void backward(Device& dev, NormGroups s, Matrix<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
              Tensor2<const Acc<T>> squares, Tensor2<const Acc<T>> dots, Index width, double eps, Matrix<T> dy, Matrix<T> dz) {
  using A = Acc<T>;
  for_teams(
      "gated_norm_backward", dev, s.rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        for (Index g = 0; g < s.groups; ++g) {
          const Index first = g * s.width;
          const T *const d = dout.row(r) + first, *const from = y.row(r) + first, *const by = z.row(r) + first;
          const A* const weight = w.data() + first;
          T *const to = dy.row(r) + first, *const dby = dz.row(r) + first;
          const A rstd = norm_factor(squares.data()[r * s.groups + g], width, eps);
          const A mean = dots.data()[r * s.groups + g] / A(width);
          each(team, s.width, [=](Index e) {
            const A in = A(from[e]), u = A(d[e]) * weight[e];
            if constexpr (order == GateOrder::none) {
              to[e] = T(rstd * (u - in * rstd * mean));
              return;
            }
            const A gate = A(by[e]);
            const A sig = sigmoid(gate), swish = gate * sig, slope = sig * (1 + gate * (1 - sig));
            if constexpr (order == GateOrder::gate_first) {
              const A dv = rstd * (u - in * swish * rstd * mean);
              to[e] = T(dv * swish);
              dby[e] = T(dv * in * slope);
            } else {
              to[e] = T(rstd * (u * swish - in * rstd * mean));
              dby[e] = T(u * in * rstd * slope);
            }
          });
        }
      });
}

}  // namespace

template <class T>
void gated_norm_squares(Device& dev, GateOrder order, Matrix<const T> y, Matrix<const T> z, Tensor2<Acc<T>> squares) {
  const NormGroups s = norm_groups(y, squares);
  with_order(order, [&](auto o) { squares_of<o(), T>(dev, s, y, z, squares); });
}

template <class T>
void gated_norm(Device& dev, GateOrder order, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w, Tensor2<const Acc<T>> squares,
                Index width, double eps, Matrix<T> out) {
  with_order(order, [&](auto o) { normalise<o(), T>(dev, norm_groups(y, squares), y, z, w, squares, width, eps, out); });
}

template <class T>
void gated_norm_dots(Device& dev, GateOrder order, Matrix<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                     Tensor2<const Acc<T>> squares, Index width, double eps, Tensor2<Acc<T>> dots, Tensor1<Acc<T>> dw) {
  using A = Acc<T>;
  const NormGroups s = norm_groups(y, squares);
  const auto partial = dev.scratch.tensor<A>(ceil_div(s.rows, block_rows), s.channels);
  if (dev.dry_run()) return;
  with_order(order, [&](auto o) { dots_of<o(), T>(dev, s, dout, y, z, w, squares, width, eps, dots, partial); });
  if (dw.data()) add_blocks<A>("gated_norm_products", dev, partial, 1, dw);
}

template <class T>
void gated_norm_backward(Device& dev, GateOrder order, Matrix<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                         Tensor2<const Acc<T>> squares, Tensor2<const Acc<T>> dots, Index width, double eps, Matrix<T> dy, Matrix<T> dz) {
  const NormGroups s = norm_groups(y, squares);
  with_order(order, [&](auto o) { backward<o(), T>(dev, s, dout, y, z, w, squares, dots, width, eps, dy, dz); });
}

GYR_SCALARS(GYR_GATE)

}  // namespace gyr::backend
