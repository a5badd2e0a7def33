// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels of the output gate of the SSD scan and of the gated RMSNorm. kernels/ops/gate.hpp has the formulas.
#include "kernels/ops/gate.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class T, int N>
GYR_KERNEL gate_kernel(Global<const T> y, Global<const T> z, Global<T> out) {
  each_row(y.rows(), [&](Index r) {
    each_column<N>(y.columns(), [&](Index c) {
      const auto from = y.template load_values<N>(r, c), by = z.template load_values<N>(r, c);
      Pack<T, N> to;
      for (int i = 0; i < N; ++i) to.at[i] = T(from.at[i] * silu(by.at[i]));
      out.template store_pack<N>(r, c, to);
    });
  });
}

template <class T, int N>
GYR_KERNEL gate_backward_kernel(Global<const T> dout, Global<const T> y, Global<const T> z, Global<T> dy, Global<T> dz) {
  using A = Acc<T>;
  each_row(y.rows(), [&](Index r) {
    each_column<N>(y.columns(), [&](Index c) {
      const auto d = dout.template load_values<N>(r, c), from = y.template load_values<N>(r, c), by = z.template load_values<N>(r, c);
      Pack<T, N> to, dby;
      for (int i = 0; i < N; ++i) {
        const A v = by.at[i], sig = sigmoid(v), o = d.at[i];
        to.at[i] = T(o * v * sig);
        dby.at[i] = T(o * from.at[i] * sig * (1 + v * (1 - sig)));
      }
      dy.template store_pack<N>(r, c, to);
      dz.template store_pack<N>(r, c, dby);
    });
  });
}

// squares(r, g) = sum over the channels of group g of v^2, with v = y silu(z) if gated, else v = y.
template <class T, int N>
GYR_KERNEL squares_kernel(NormGroups s, bool gated, Global<const T> y, Global<const T> z, Global<Acc<T>> squares) {
  using A = Acc<T>;
  each_row(s.rows, [&](Index r) {
    for (Index g = 0; g < s.groups; ++g) {
      A total = 0;
      each_column<N>(s.width, [&](Index e) {
        const auto from = y.template load_values<N>(r, g * s.width + e);
        Pack<A, N> by;
        if (gated) by = z.template load_values<N>(r, g * s.width + e);
        for (int i = 0; i < N; ++i) {
          const A v = gated ? from.at[i] * silu(by.at[i]) : from.at[i];
          total += v * v;
        }
      });
      total = warp_sum(total);
      if (lane() == 0) squares.store(r, g, total);
    }
  });
}

// Computes rstd of a norm group from the sum of squares over its `width` channels. inverse_width: 1 / width.
template <class A>
struct NormFactor {
  A inverse_width, eps;
  NormFactor(Index width, double eps) : inverse_width(A(1 / double(width))), eps(A(eps)) {}
  GYR_DEVICE A of(A squares) const { return inverse_root(squares * inverse_width + eps); }
};

// Computes `dots` for one norm group and the rows of a block, and sums dn vh over these rows into one row of
// `partial`. The dot products are the same for both gate orders.
template <class T, int N, int P>
GYR_KERNEL_WITHIN(P == 1 ? 80 : 168)
dots_kernel(NormGroups s, bool gated, NormFactor<Acc<T>> factor, Index rows_of_block, Global<const T> dout, Global<const T> y, Global<const T> z,
                Global<const Acc<T>> w, Global<const Acc<T>> squares, Global<Acc<T>> dots, Global<Acc<T>> partial) {
  using A = Acc<T>;
  constexpr int K = few_rows_at_once<P>;
  const Index g = block_index() % s.groups, block = block_index() / s.groups, group_begin = g * s.width;
  const Index begin = block * rows_of_block, end = begin + rows_of_block < s.rows ? begin + rows_of_block : s.rows;
  const ColumnWeights<A, N, P> weight(w, A(0), group_begin, s.width);
  ColumnSums<A, N, P> dw(partial, block, group_begin, s.width);
  BlockSums<A, K> sum;
  for (Index first = begin; first < end; first += K) {
    RowPart<T, N, P> d[K], from[K], by[K];
    A rstd[K];
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      const Index r = first + k < end ? first + k : end - 1;
      d[k].take(dout, r, group_begin, s.width), from[k].take(y, r, group_begin, s.width), by[k].take(z, r, group_begin, s.width),
          rstd[k] = factor.of(squares.load(r, g));
    }
    Pack<A, K> total = {};
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      if (first + k >= end) break;
      each_part<N, P>(s.width, [&](int p, Index c) {
        const auto o = d[k].values(p, c), v = from[k].values(p, c), gate = by[k].values(p, c), scale = weight.values(p, c);
        Pack<A, N> product;
        for (int i = 0; i < N; ++i) {
          product.at[i] = o.at[i] * v.at[i] * (gated ? silu(gate.at[i]) : A(1)) * rstd[k];
          total.at[k] += product.at[i] * scale.at[i];
        }
        dw.add(p, c, product);
      });
    }
    const A group_begin = sum(total);
    GYR_UNROLL
    for (int k = 0; k < K; ++k) {
      const A product = sum.of(group_begin, k);
      if (thread_index() == 0 && first + k < end) dots.store(first + k, g, product);
    }
  }
  dw.store();
}

template <class T, int N>
GYR_KERNEL norm_kernel(NormGroups s, bool gated, NormFactor<Acc<T>> factor, Global<const T> y, Global<const T> z, Global<const Acc<T>> w,
                       Global<const Acc<T>> squares, Global<T> out) {
  using A = Acc<T>;
  each_row(s.rows, [&](Index r) {
    for (Index g = 0; g < s.groups; ++g) {
      const A rstd = factor.of(squares.load(r, g));
      each_column<N>(s.width, [&](Index e) {
        const Index c = g * s.width + e;
        const auto from = y.template load_values<N>(r, c);
        const auto weight = w.template load_pack<N>(0, c);
        Pack<A, N> by;
        if (gated) by = z.template load_values<N>(r, c);
        Pack<T, N> to;
        for (int i = 0; i < N; ++i) to.at[i] = T(weight.at[i] * rstd * from.at[i] * (gated ? silu(by.at[i]) : A(1)));
        out.template store_pack<N>(r, c, to);
      });
    }
  });
}

// Gradients dy of the scan output and dz of the gate. u = dO w, mean = dots / width.
template <class A>
struct NormGradient {
  GateOrder order;
  A rstd, mean;
  GYR_DEVICE void operator()(A u, A in, A gate, A& dy, A& dz) const {
    const bool gate_first = order == GateOrder::gate_first;
    const A sig = sigmoid(gate), swish = gate * sig, slope = sig * (1 + gate * (1 - sig));
    const A dv = rstd * (u - in * swish * rstd * mean);
    dy = gate_first ? dv * swish : rstd * (u * swish - in * rstd * mean);
    dz = gate_first ? dv * in * slope : u * in * rstd * slope;
  }
  GYR_DEVICE A ungated(A u, A in) const { return rstd * (u - in * rstd * mean); }
};

template <class T, int N>
GYR_KERNEL norm_backward_kernel(NormGroups s, GateOrder order, NormFactor<Acc<T>> factor, Global<const T> dout, Global<const T> y, Global<const T> z,
                                Global<const Acc<T>> w, Global<const Acc<T>> squares, Global<const Acc<T>> dots, Global<T> dy, Global<T> dz) {
  using A = Acc<T>;
  each_row(s.rows, [&](Index r) {
    for (Index g = 0; g < s.groups; ++g) {
      const NormGradient<A> gradient{order, factor.of(squares.load(r, g)), dots.load(r, g) * factor.inverse_width};
      each_column<N>(s.width, [&](Index e) {
        const Index c = g * s.width + e;
        const auto d = dout.template load_values<N>(r, c), from = y.template load_values<N>(r, c);
        const auto weight = w.template load_pack<N>(0, c);
        Pack<T, N> to, dby;
        if (order == GateOrder::none) {
          for (int i = 0; i < N; ++i) to.at[i] = T(gradient.ungated(d.at[i] * weight.at[i], from.at[i]));
          dy.template store_pack<N>(r, c, to);
          return;
        }
        const auto by = z.template load_values<N>(r, c);
        for (int i = 0; i < N; ++i) {
          A dv, dgate;
          gradient(d.at[i] * weight.at[i], from.at[i], by.at[i], dv, dgate);
          to.at[i] = T(dv), dby.at[i] = T(dgate);
        }
        dy.template store_pack<N>(r, c, to);
        dz.template store_pack<N>(r, c, dby);
      });
    }
  });
}

// An empty row as wide as a norm group. It limits the pack width, because packs must not cross groups.
template <class T>
Global<const T> group_of(const NormGroups& s) {
  return Matrix<const T>(nullptr, 1, s.width, s.width);
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
  with_packs<T>(
      [&](auto n) {
        launch(dev, "gated_norm_squares", grid_of_rows(from), squares_kernel<T, n>, s, order == GateOrder::gate_first, from, by, squares);
      },
      group_of<T>(s), from, by);
}

template <class T>
void gated_norm(Device& dev, GateOrder order, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w, Tensor2<const Acc<T>> squares, Index width,
                double eps, Matrix<T> out) {
  const NormGroups s = norm_groups(y, squares);
  const Global<const T> from(y), by(z);
  const Global<const Acc<T>> weight(w);
  const Global<T> to(out);
  const NormFactor<Acc<T>> factor(width, eps);
  with_packs<T>([&](auto n) { launch(dev, "gated_norm", grid_of_rows(from), norm_kernel<T, n>, s, order != GateOrder::none, factor, from, by, weight, squares, to); },
                group_of<T>(s), from, by, weight, to);
}

template <class T>
void gated_norm_dots(Device& dev, GateOrder order, Matrix<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                         Tensor2<const Acc<T>> squares, Index width, double eps, Tensor2<Acc<T>> dots, Tensor1<Acc<T>> dw) {
  using A = Acc<T>;
  const NormGroups s = norm_groups(y, squares);
  const Index of_block = rows_of_sums<T>(s.rows, s.width, s.groups), blocks = ceil_div(s.rows, of_block);
  const Global<A> partial(dev.scratch.tensor<A>(dw.data() ? blocks : 0, s.channels));
  if (dev.dry_run()) return;
  const Global<const T> d(dout), from(y), by(z);
  const Global<const A> weight(w);
  const NormFactor<A> factor(width, eps);
  with_row_packs<T>(
      s.width,
      [&](auto n, auto p, int threads) {
        launch(dev, "gated_norm_products", {blocks * s.groups, threads, BlockSums<A, few_rows_at_once<p>>::bytes(threads)}, dots_kernel<T, n, p>,
               s, order != GateOrder::none, factor, of_block, d, from, by, weight, squares, dots, dw.data() ? partial : Global<A>());
      },
      group_of<T>(s), d, from, by, weight, partial);
  if (dw.data()) add_blocks<A>(dev, "gated_norm_products", partial, A(1), dw);
}

template <class T>
void gated_norm_backward(Device& dev, GateOrder order, Matrix<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                         Tensor2<const Acc<T>> squares, Tensor2<const Acc<T>> dots, Index width, double eps, Matrix<T> dy, Matrix<T> dz) {
  const NormGroups s = norm_groups(y, squares);
  const Global<const T> d(dout), from(y), by(z);
  const Global<const Acc<T>> weight(w);
  const Global<T> to(dy), dby(dz);
  const NormFactor<Acc<T>> factor(width, eps);
  with_packs<T>(
      [&](auto n) {
        launch(dev, "gated_norm_backward", grid_of_rows(from), norm_backward_kernel<T, n>, s, order, factor, d, from, by,
               weight, squares, dots, to, dby);
      },
      group_of<T>(s), d, from, by, weight, to, dby);
}

GYR_SCALARS(GYR_GATE)

}  // namespace gyr::backend
