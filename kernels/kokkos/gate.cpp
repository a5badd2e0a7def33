// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/gate.hpp"

#include "kernels/kokkos/rows.hpp"
#include "kernels/math.hpp"

namespace gyr {

template <class T>
void gate(Device& dev, Matrix<const T> y, Matrix<const T> z, Tensor2<T> out) {
  using A = Acc<T>;
  const Index rows = y.rows, channels = y.columns;
  ensure(z.rows == rows && z.columns == channels && Index(out.extent(0)) == rows && Index(out.extent(1)) == channels,
         "gate of ({},{}) by ({},{}) into ({},{})", rows, channels, z.rows, z.columns, out.extent(0), out.extent(1));
  const auto run = dev.launch("gate", 5.0 * rows * channels, 3.0 * sizeof(T) * rows * channels);
  if (!run) return;
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
  for (const auto& same : {Matrix<const T>(dout), z, Matrix<const T>(dy), Matrix<const T>(dz)})
    ensure(same.rows == rows && same.columns == channels, "gate_backward of ({},{}) and ({},{})", rows, channels, same.rows, same.columns);
  const auto run = dev.launch("gate_backward", 11.0 * rows * channels, 5.0 * sizeof(T) * rows * channels);
  if (!run) return;
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

// The four kernels of the gated norm see the same tensors and walk over them alike.
struct Groups {
  Index rows, channels, groups, width;  // width: channels of a group on this rank
};

template <class T, class A>
Groups checked(const char* kernel, const Matrix<const T>& y, const Matrix<const T>& z, const Tensor2<A>& squares) {
  const Index groups = squares.extent(1);
  ensure(y.rows == z.rows && y.columns == z.columns && Index(squares.extent(0)) == y.rows && groups > 0 && y.columns % groups == 0,
         "{} of ({},{}) by ({},{}) in groups ({},{})", kernel, y.rows, y.columns, z.rows, z.columns, squares.extent(0), groups);
  return {y.rows, y.columns, groups, y.columns / groups};
}

template <class T>
void check_shape(const char* kernel, const Groups& s, const Matrix<const T>& x) {
  ensure(x.rows == s.rows && x.columns == s.channels, "{} of ({},{}) and ({},{})", kernel, s.rows, s.channels, x.rows, x.columns);
}

template <class A>
void check_weights(const char* kernel, const Groups& s, const Tensor1<A>& w) {
  ensure(Index(w.extent(0)) == s.channels, "{} of {} channels with {} weights", kernel, s.channels, w.extent(0));
}

template <class A>
KOKKOS_INLINE_FUNCTION A reciprocal_root(A squares, Index width, double eps) {
  return A(1 / std::sqrt(double(squares) / double(width) + eps));
}

template <GateOrder order, class T>
void squares_of(Device& dev, Groups s, Matrix<const T> y, Matrix<const T> z, Tensor2<Acc<T>> squares) {
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

template <class T>
void normalise(Device& dev, Groups s, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w, Tensor2<const Acc<T>> squares, Index width,
               double eps, Tensor2<T> out) {
  using A = Acc<T>;
  for_teams(
      "gated_norm", dev, s.rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        for (Index g = 0; g < s.groups; ++g) {
          const Index first = g * s.width;
          const T *const from = y.row(r) + first, *const by = z.row(r) + first;
          const A* const weight = w.data() + first;
          T* const to = out.data() + r * s.channels + first;
          const A rstd = reciprocal_root(squares.data()[r * s.groups + g], width, eps);
          each(team, s.width, [=](Index e) { to[e] = T(weight[e] * rstd * A(from[e]) * silu(A(by[e]))); });  // the same in both orders
        }
      });
}

template <class T>
void products_of(Device& dev, Groups s, Tensor2<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                 Tensor2<const Acc<T>> squares, Index width, double eps, Tensor2<Acc<T>> products, Tensor2<Acc<T>> partial) {
  using A = Acc<T>;
  for_teams(
      "gated_norm_products", dev, partial.extent(0), KOKKOS_LAMBDA(const Team& team, Index b) {
        A* const dw = partial.data() + b * s.channels;
        for (Index g = 0; g < s.groups; ++g)  // as below: a lane keeps its channels
          each(team, s.width, [=](Index e) { dw[g * s.width + e] = 0; });
        for (Index r = b * block_rows; r < least((b + 1) * block_rows, s.rows); ++r)
          for (Index g = 0; g < s.groups; ++g) {
            const Index first = g * s.width;
            const T *const d = dout.data() + r * s.channels + first, *const from = y.row(r) + first, *const by = z.row(r) + first;
            const A* const weight = w.data() + first;
            A* const sums = dw + first;
            const A rstd = reciprocal_root(squares.data()[r * s.groups + g], width, eps);
            const A total = sum<A>(team, s.width, [=](Index e, A& t) {
              const A product = A(d[e]) * A(from[e]) * silu(A(by[e])) * rstd;  // dn vh, the same in both orders
              sums[e] += product;
              t += product * weight[e];
            });
            once(team, [&] { products.data()[r * s.groups + g] = total; });
          }
      });
}

template <GateOrder order, class T>
void backward(Device& dev, Groups s, Tensor2<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
              Tensor2<const Acc<T>> squares, Tensor2<const Acc<T>> products, Index width, double eps, Tensor2<T> dy, Matrix<T> dz) {
  using A = Acc<T>;
  for_teams(
      "gated_norm_backward", dev, s.rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        for (Index g = 0; g < s.groups; ++g) {
          const Index first = g * s.width;
          const T *const d = dout.data() + r * s.channels + first, *const from = y.row(r) + first, *const by = z.row(r) + first;
          const A* const weight = w.data() + first;
          T *const to = dy.data() + r * s.channels + first, *const dby = dz.row(r) + first;
          const A rstd = reciprocal_root(squares.data()[r * s.groups + g], width, eps);
          const A mean = products.data()[r * s.groups + g] / A(width);
          each(team, s.width, [=](Index e) {
            const A gate = A(by[e]), in = A(from[e]), u = A(d[e]) * weight[e];
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
  const Groups s = checked("gated_norm_squares", y, z, squares);
  const bool gated = order == GateOrder::gate_first;
  const auto run = dev.launch("gated_norm_squares", (gated ? 7.0 : 2.0) * s.rows * s.channels, (gated ? 2.0 : 1.0) * sizeof(T) * s.rows * s.channels);
  if (!run) return;
  if (gated) squares_of<GateOrder::gate_first, T>(dev, s, y, z, squares);
  else squares_of<GateOrder::norm_first, T>(dev, s, y, z, squares);
}

template <class T>
void gated_norm(Device& dev, GateOrder, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w, Tensor2<const Acc<T>> squares, Index width,
                double eps, Tensor2<T> out) {
  const Groups s = checked("gated_norm", y, z, squares);
  check_shape<T>("gated_norm", s, Tensor2<const T>(out));
  check_weights("gated_norm", s, w);
  const auto run = dev.launch("gated_norm", 7.0 * s.rows * s.channels, 3.0 * sizeof(T) * s.rows * s.channels);
  if (run) normalise<T>(dev, s, y, z, w, squares, width, eps, out);
}

template <class T>
void gated_norm_products(Device& dev, GateOrder, Tensor2<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                         Tensor2<const Acc<T>> squares, Index width, double eps, Tensor2<Acc<T>> products, Tensor1<Acc<T>> dw) {
  using A = Acc<T>;
  const Groups s = checked("gated_norm_products", y, z, squares);
  checked("gated_norm_products", y, z, products);
  ensure(products.extent(1) == squares.extent(1), "gated_norm_products of {} groups into {}", squares.extent(1), products.extent(1));
  check_shape<T>("gated_norm_products", s, dout);
  check_weights("gated_norm_products", s, w);
  if (dw.data()) check_weights("gated_norm_products", s, dw);
  const Workspace workspace(dev.scratch, "gated_norm_products");
  const auto partial = dev.scratch.tensor<A>(ceil_div(s.rows, block_rows), s.channels);
  const auto run = dev.launch("gated_norm_products", 10.0 * s.rows * s.channels, 3.0 * sizeof(T) * s.rows * s.channels);
  if (!run) return;
  products_of<T>(dev, s, dout, y, z, w, squares, width, eps, products, partial);
  if (dw.data()) add_blocks<A>("gated_norm_products", dev, partial, 1, dw);
}

template <class T>
void gated_norm_backward(Device& dev, GateOrder order, Tensor2<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                         Tensor2<const Acc<T>> squares, Tensor2<const Acc<T>> products, Index width, double eps, Tensor2<T> dy, Matrix<T> dz) {
  const Groups s = checked("gated_norm_backward", y, z, squares);
  checked("gated_norm_backward", y, z, products);
  ensure(products.extent(1) == squares.extent(1), "gated_norm_backward of {} groups and {}", squares.extent(1), products.extent(1));
  for (const auto& same : {Matrix<const T>(dout), Matrix<const T>(dy), Matrix<const T>(dz)}) check_shape<T>("gated_norm_backward", s, same);
  check_weights("gated_norm_backward", s, w);
  const auto run = dev.launch("gated_norm_backward", 18.0 * s.rows * s.channels, 5.0 * sizeof(T) * s.rows * s.channels);
  if (!run) return;
  if (order == GateOrder::gate_first) backward<GateOrder::gate_first, T>(dev, s, dout, y, z, w, squares, products, width, eps, dy, dz);
  else backward<GateOrder::norm_first, T>(dev, s, dout, y, z, w, squares, products, width, eps, dy, dz);
}

template void gate<double>(Device&, Matrix<const double>, Matrix<const double>, Tensor2<double>);
template void gate<float>(Device&, Matrix<const float>, Matrix<const float>, Tensor2<float>);
template void gate<bf16>(Device&, Matrix<const bf16>, Matrix<const bf16>, Tensor2<bf16>);
template void gate_backward<double>(Device&, Tensor2<const double>, Matrix<const double>, Matrix<const double>, Tensor2<double>, Matrix<double>);
template void gate_backward<float>(Device&, Tensor2<const float>, Matrix<const float>, Matrix<const float>, Tensor2<float>, Matrix<float>);
template void gate_backward<bf16>(Device&, Tensor2<const bf16>, Matrix<const bf16>, Matrix<const bf16>, Tensor2<bf16>, Matrix<bf16>);
template void gated_norm_squares<double>(Device&, GateOrder, Matrix<const double>, Matrix<const double>, Tensor2<double>);
template void gated_norm_squares<float>(Device&, GateOrder, Matrix<const float>, Matrix<const float>, Tensor2<float>);
template void gated_norm_squares<bf16>(Device&, GateOrder, Matrix<const bf16>, Matrix<const bf16>, Tensor2<float>);
template void gated_norm<double>(Device&, GateOrder, Matrix<const double>, Matrix<const double>, Tensor1<const double>, Tensor2<const double>, Index,
                                 double, Tensor2<double>);
template void gated_norm<float>(Device&, GateOrder, Matrix<const float>, Matrix<const float>, Tensor1<const float>, Tensor2<const float>, Index,
                                double, Tensor2<float>);
template void gated_norm<bf16>(Device&, GateOrder, Matrix<const bf16>, Matrix<const bf16>, Tensor1<const float>, Tensor2<const float>, Index, double,
                               Tensor2<bf16>);
template void gated_norm_products<double>(Device&, GateOrder, Tensor2<const double>, Matrix<const double>, Matrix<const double>,
                                          Tensor1<const double>, Tensor2<const double>, Index, double, Tensor2<double>, Tensor1<double>);
template void gated_norm_products<float>(Device&, GateOrder, Tensor2<const float>, Matrix<const float>, Matrix<const float>, Tensor1<const float>,
                                         Tensor2<const float>, Index, double, Tensor2<float>, Tensor1<float>);
template void gated_norm_products<bf16>(Device&, GateOrder, Tensor2<const bf16>, Matrix<const bf16>, Matrix<const bf16>, Tensor1<const float>,
                                        Tensor2<const float>, Index, double, Tensor2<float>, Tensor1<float>);
template void gated_norm_backward<double>(Device&, GateOrder, Tensor2<const double>, Matrix<const double>, Matrix<const double>,
                                          Tensor1<const double>, Tensor2<const double>, Tensor2<const double>, Index, double, Tensor2<double>,
                                          Matrix<double>);
template void gated_norm_backward<float>(Device&, GateOrder, Tensor2<const float>, Matrix<const float>, Matrix<const float>, Tensor1<const float>,
                                         Tensor2<const float>, Tensor2<const float>, Index, double, Tensor2<float>, Matrix<float>);
template void gated_norm_backward<bf16>(Device&, GateOrder, Tensor2<const bf16>, Matrix<const bf16>, Matrix<const bf16>, Tensor1<const float>,
                                        Tensor2<const float>, Tensor2<const float>, Index, double, Tensor2<bf16>, Matrix<bf16>);

}  // namespace gyr
