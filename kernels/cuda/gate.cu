// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/backend.hpp"
#include "kernels/cuda/rows.hpp"
#include "kernels/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class T, int N>
GYR_KERNEL gate_kernel(Global<const T> y, Global<const T> z, Global<T> out) {
  using A = Acc<T>;
  each_row(y.rows(), [&](Index r) {
    each_column<N>(y.columns(), [&](Index c) {
      const auto from = y.template load_pack<N>(r, c), by = z.template load_pack<N>(r, c);
      Pack<T, N> to;
      for (int i = 0; i < N; ++i) to.at[i] = T(A(from.at[i]) * silu(A(by.at[i])));
      out.template store_pack<N>(r, c, to);
    });
  });
}

template <class T, int N>
GYR_KERNEL gate_backward_kernel(Global<const T> dout, Global<const T> y, Global<const T> z, Global<T> dy, Global<T> dz) {
  using A = Acc<T>;
  each_row(y.rows(), [&](Index r) {
    each_column<N>(y.columns(), [&](Index c) {
      const auto d = dout.template load_pack<N>(r, c), from = y.template load_pack<N>(r, c), by = z.template load_pack<N>(r, c);
      Pack<T, N> to, dby;
      for (int i = 0; i < N; ++i) {
        const A v = A(by.at[i]), sig = sigmoid(v), o = A(d.at[i]);
        to.at[i] = T(o * v * sig);
        dby.at[i] = T(o * A(from.at[i]) * sig * (1 + v * (1 - sig)));
      }
      dy.template store_pack<N>(r, c, to);
      dz.template store_pack<N>(r, c, dby);
    });
  });
}

// out(r, g) = sum over the channels of group g of what term(r, c) gives for a pack of them.
template <int N, class A, class Term>
GYR_DEVICE void sum_groups(const NormGroups& s, const Global<A>& out, const Term& term) {
  each_row(s.rows, [&](Index r) {
    for (Index g = 0; g < s.groups; ++g) {
      A total = 0;
      each_column<N>(s.width, [&](Index e) { total += term(r, g, g * s.width + e); });
      total = warp_sum(total);
      if (lane() == 0) out.store(r, g, total);
    }
  });
}

template <class T, int N>
GYR_KERNEL squares_kernel(NormGroups s, bool gated, Global<const T> y, Global<const T> z, Global<Acc<T>> squares) {
  using A = Acc<T>;
  sum_groups<N>(s, squares, [&](Index r, Index, Index c) {
    const auto from = y.template load_pack<N>(r, c);
    Pack<T, N> by = {};
    if (gated) by = z.template load_pack<N>(r, c);
    A total = 0;
    for (int i = 0; i < N; ++i) {
      const A v = gated ? A(from.at[i]) * silu(A(by.at[i])) : A(from.at[i]);
      total += v * v;
    }
    return total;
  });
}

// What both kernels of the gradient begin with: dn vh of a pack of channels, the same in both orders.
template <class T, int N>
struct NormProducts {
  Global<const T> dout, y, z;
  Global<const Acc<T>> squares;
  Index group, width;  // channels of a group on this rank, of a whole one
  double eps;

  GYR_DEVICE Pack<Acc<T>, N> at(Index r, Index g, Index c) const {
    using A = Acc<T>;
    const A rstd = norm_factor(squares.load(r, g), width, eps);
    const auto d = dout.template load_pack<N>(r, c), from = y.template load_pack<N>(r, c), by = z.template load_pack<N>(r, c);
    Pack<A, N> product;
    for (int i = 0; i < N; ++i) product.at[i] = A(d.at[i]) * A(from.at[i]) * silu(A(by.at[i])) * rstd;
    return product;
  }
  GYR_DEVICE void add(Index r, Index c, Pack<Acc<T>, N>& sum) const {
    const auto product = at(r, c / group, c);
    for (int i = 0; i < N; ++i) sum.at[i] += product.at[i];
  }
};

template <class T, int N>
GYR_KERNEL products_kernel(NormGroups s, NormProducts<T, N> product, Global<const Acc<T>> w, Global<Acc<T>> products) {
  using A = Acc<T>;
  sum_groups<N>(s, products, [&](Index r, Index g, Index c) {
    const auto here = product.at(r, g, c);
    const auto weight = w.template load_pack<N>(0, c);
    A total = 0;
    for (int i = 0; i < N; ++i) total += here.at[i] * weight.at[i];
    return total;
  });
}

template <class T, int N>
GYR_KERNEL norm_kernel(NormGroups s, Global<const T> y, Global<const T> z, Global<const Acc<T>> w, Global<const Acc<T>> squares, Index width,
                       double eps, Global<T> out) {
  using A = Acc<T>;
  each_row(s.rows, [&](Index r) {
    for (Index g = 0; g < s.groups; ++g) {
      const A rstd = norm_factor(squares.load(r, g), width, eps);
      each_column<N>(s.width, [&](Index e) {
        const Index c = g * s.width + e;
        const auto from = y.template load_pack<N>(r, c), by = z.template load_pack<N>(r, c);
        const auto weight = w.template load_pack<N>(0, c);
        Pack<T, N> to;
        for (int i = 0; i < N; ++i) to.at[i] = T(weight.at[i] * rstd * A(from.at[i]) * silu(A(by.at[i])));
        out.template store_pack<N>(r, c, to);
      });
    }
  });
}

// Gradients of v = y silu(z) or y, of which the mean has been taken, and of z. u = do w.
template <class A>
struct NormGradient {
  bool gate_first;
  A rstd, mean;
  GYR_DEVICE void operator()(A u, A in, A gate, A& dy, A& dz) const {
    const A sig = sigmoid(gate), swish = gate * sig, slope = sig * (1 + gate * (1 - sig));
    const A dv = rstd * (u - in * swish * rstd * mean);
    dy = gate_first ? dv * swish : rstd * (u * swish - in * rstd * mean);
    dz = gate_first ? dv * in * slope : u * in * rstd * slope;
  }
};

template <class T, int N>
GYR_KERNEL norm_backward_kernel(NormGroups s, bool gate_first, Global<const T> dout, Global<const T> y, Global<const T> z, Global<const Acc<T>> w,
                                Global<const Acc<T>> squares, Global<const Acc<T>> products, Index width, double eps, Global<T> dy, Global<T> dz) {
  using A = Acc<T>;
  each_row(s.rows, [&](Index r) {
    for (Index g = 0; g < s.groups; ++g) {
      const NormGradient<A> gradient{gate_first, norm_factor(squares.load(r, g), width, eps), products.load(r, g) / A(width)};
      each_column<N>(s.width, [&](Index e) {
        const Index c = g * s.width + e;
        const auto d = dout.template load_pack<N>(r, c), from = y.template load_pack<N>(r, c), by = z.template load_pack<N>(r, c);
        const auto weight = w.template load_pack<N>(0, c);
        Pack<T, N> to, dby;
        for (int i = 0; i < N; ++i) {
          A dv, dgate;
          gradient(A(d.at[i]) * weight.at[i], A(from.at[i]), A(by.at[i]), dv, dgate);
          to.at[i] = T(dv), dby.at[i] = T(dgate);
        }
        dy.template store_pack<N>(r, c, to);
        dz.template store_pack<N>(r, c, dby);
      });
    }
  });
}

// As with_packs, where packs may not reach beyond a group either.
template <class T, class F, class... X>
void with_group_packs(const NormGroups& s, const F& f, const Global<X>&... tensors) {
  with_packs<T>(f, Global<const T>(Matrix<const T>(nullptr, 1, s.width, s.width)), tensors...);
}

}  // namespace

template <class T>
void gate(Device& dev, Matrix<const T> y, Matrix<const T> z, Tensor2<T> out) {
  const Global<const T> from(y), by(z);
  const Global<T> to(out);
  with_packs<T>([&](auto n) { launch(dev, "gate", grid_of_rows(from), gate_kernel<T, n>, from, by, to); }, from, by, to);
}

template <class T>
void gate_backward(Device& dev, Tensor2<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor2<T> dy, Matrix<T> dz) {
  const Global<const T> d(dout), from(y), by(z);
  const Global<T> to(dy), dby(dz);
  with_packs<T>([&](auto n) { launch(dev, "gate_backward", grid_of_rows(from), gate_backward_kernel<T, n>, d, from, by, to, dby); }, d, from, by, to,
                dby);
}

template <class T>
void gated_norm_squares(Device& dev, GateOrder order, Matrix<const T> y, Matrix<const T> z, Tensor2<Acc<T>> squares) {
  const NormGroups s = norm_groups(y, squares);
  const Global<const T> from(y), by(z);
  with_group_packs<T>(
      s,
      [&](auto n) {
        launch(dev, "gated_norm_squares", grid_of_rows(from), squares_kernel<T, n>, s, order == GateOrder::gate_first, from, by, squares);
      },
      from, by);
}

template <class T>
void gated_norm(Device& dev, GateOrder, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w, Tensor2<const Acc<T>> squares, Index width,
                double eps, Tensor2<T> out) {
  const NormGroups s = norm_groups(y, squares);
  const Global<const T> from(y), by(z);
  const Global<const Acc<T>> weight(w);
  const Global<T> to(out);
  with_group_packs<T>(
      s, [&](auto n) { launch(dev, "gated_norm", grid_of_rows(from), norm_kernel<T, n>, s, from, by, weight, squares, width, eps, to); }, from, by,
      weight, to);
}

template <class T>
void gated_norm_products(Device& dev, GateOrder, Tensor2<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                         Tensor2<const Acc<T>> squares, Index width, double eps, Tensor2<Acc<T>> products, Tensor1<Acc<T>> dw) {
  using A = Acc<T>;
  const NormGroups s = norm_groups(y, squares);
  const auto partial = dev.scratch.tensor<A>(ceil_div(s.rows, block_rows), s.channels);
  if (dev.dry_run()) return;
  const Global<const T> d(dout), from(y), by(z);
  const Global<const A> weight(w);
  with_group_packs<T>(
      s,
      [&](auto n) {
        const NormProducts<T, n> product{d, from, by, squares, s.width, width, eps};
        launch(dev, "gated_norm_products", grid_of_rows(from), products_kernel<T, n>, s, product, weight, products);
        if (dw.data()) add_column_sums<n>(dev, "gated_norm_products", product, s.rows, partial, A(1), dw);
      },
      d, from, by, weight, Global<A>(partial));
}

template <class T>
void gated_norm_backward(Device& dev, GateOrder order, Tensor2<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                         Tensor2<const Acc<T>> squares, Tensor2<const Acc<T>> products, Index width, double eps, Tensor2<T> dy, Matrix<T> dz) {
  const NormGroups s = norm_groups(y, squares);
  const Global<const T> d(dout), from(y), by(z);
  const Global<const Acc<T>> weight(w);
  const Global<T> to(dy), dby(dz);
  with_group_packs<T>(
      s,
      [&](auto n) {
        launch(dev, "gated_norm_backward", grid_of_rows(from), norm_backward_kernel<T, n>, s, order == GateOrder::gate_first, d, from, by, weight,
               squares, products, width, eps, to, dby);
      },
      d, from, by, weight, to, dby);
}

GYR_SCALARS(GYR_GATE)

}  // namespace gyr::backend
