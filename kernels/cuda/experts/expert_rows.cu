// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels that move rows to experts and back: grouping of slots (one choice of a row each) by expert, gather,
// combine, and the weighted GLU and biases with gradients.
#include "kernels/ops/expert_rows.hpp"

#include "kernels/ops/activation_math.hpp"
#include "kernels/cuda/experts/experts.hpp"
#include "kernels/base/instances.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

GYR_KERNEL count_rows_kernel(Global<const std::int32_t> chosen, Global<std::int32_t> count) {
  each_row(count.columns(), [&](Index expert) {
    const int rows = count_slots(chosen, expert);
    if (lane() == 0) count.store(expert, rows);
  });
}

GYR_KERNEL place_rows_kernel(Global<const std::int32_t> chosen, Global<const std::int32_t> count, Global<std::int32_t> place,
                             Global<std::int32_t> slots) {
  each_row(count.columns(), [&](Index expert) {
    Index next = 0;
    for (Index before = lane(); before < expert; before += warp_size) next += count.load(before);
    next = warp_sum(next);
    each_slot(chosen, expert, [&](Index slot, std::uint32_t which) {
      if (which >> lane() & 1) {
        const Index p = next + bits_of(which & ((std::uint32_t(1) << lane()) - 1));
        place.store(slot, std::int32_t(p));
        slots.store(p, std::int32_t(slot));
      }
      next += bits_of(which);
    });
  });
}

template <class T, int N>
GYR_KERNEL gather_rows_kernel(Global<const std::int32_t> slot, Index choices, Global<const T> x, Global<T> y) {
  each_row(y.rows(), [&](Index p) {
    const Index r = slot.load(p) / choices;
    each_column<N>(y.columns(), [&](Index c) { y.template store_pack<N>(p, c, x.template load_pack<N>(r, c)); });
  });
}

template <class T, int N>
GYR_KERNEL combine_rows_kernel(Global<const std::int32_t> place, Global<const T> x, bool adds, Global<T> y) {
  using A = Acc<T>;
  each_row(y.rows(), [&](Index r) {
    each_column<N>(y.columns(), [&](Index c) {
      A sum[N] = {};
      if (adds) {
        const auto before = y.template load_pack<N>(r, c);
        for (int i = 0; i < N; ++i) sum[i] = A(before.at[i]);
      }
      for (Index k = 0; k < place.columns(); ++k) {
        const auto more = x.template load_pack<N>(place.load(r, k), c);
        for (int i = 0; i < N; ++i) sum[i] += A(more.at[i]);
      }
      Pack<T, N> out;
      for (int i = 0; i < N; ++i) out.at[i] = T(sum[i]);
      y.template store_pack<N>(r, c, out);
    });
  });
}

template <Activation a, class T, int N>
GYR_KERNEL weighted_glu_kernel(Global<const std::int32_t> slot, Global<const T> gate_up, Global<const Acc<T>> w, Global<T> y) {
  using A = Acc<T>;
  each_row(y.rows(), [&](Index p) {
    const A weight = w.load(slot.load(p));
    each_column<N>(y.columns(), [&](Index f) {
      const auto gate = gate_up.template load_pack<N>(p, f), up = gate_up.template load_pack<N>(p, y.columns() + f);
      Pack<T, N> out;
      for (int i = 0; i < N; ++i) out.at[i] = T(weight * up_factor<a>(A(up.at[i])) * activation_at<a>(A(gate.at[i])));
      y.template store_pack<N>(p, f, out);
    });
  });
}

template <Activation a, class T, int N>
GYR_KERNEL weighted_glu_backward_kernel(Global<const std::int32_t> slot, Global<const T> dy, Global<const T> gate_up, Global<const Acc<T>> w,
                                           Global<T> dgate_up, Global<Acc<T>> dw) {
  using A = Acc<T>;
  const Index width = dy.columns();
  each_row(dy.rows(), [&](Index p) {
    const A weight = w.load(slot.load(p));
    A along = 0;
    each_column<N>(width, [&](Index f) {
      const auto gate = gate_up.template load_pack<N>(p, f), up = gate_up.template load_pack<N>(p, width + f), dout = dy.template load_pack<N>(p, f);
      Pack<T, N> dgate, dup;
      for (int i = 0; i < N; ++i) {
        const A s = A(gate.at[i]), d = weight * A(dout.at[i]), gated = activation_at<a>(s), linear = up_factor<a>(A(up.at[i]));
        along += A(dout.at[i]) * linear * gated;
        dup.at[i] = T(d * up_factor_slope<a>(A(up.at[i])) * gated);
        dgate.at[i] = T(d * linear * activation_slope<a>(s));
      }
      dgate_up.template store_pack<N>(p, f, dgate);
      dgate_up.template store_pack<N>(p, width + f, dup);
    });
    along = warp_sum(along);
    if (lane() == 0) dw.store(slot.load(p), along);
  });
}

// Without a gate: y = w a(up)
template <Activation a, class T, int N>
GYR_KERNEL weighted_activation_kernel(Global<const std::int32_t> slot, Global<const T> up, Global<const Acc<T>> w, Global<T> y) {
  using A = Acc<T>;
  each_row(y.rows(), [&](Index p) {
    const A weight = w.load(slot.load(p));
    each_column<N>(y.columns(), [&](Index f) {
      const auto in = up.template load_pack<N>(p, f);
      Pack<T, N> out;
      for (int i = 0; i < N; ++i) out.at[i] = T(weight * activation_at<a>(A(in.at[i])));
      y.template store_pack<N>(p, f, out);
    });
  });
}

template <Activation a, class T, int N>
GYR_KERNEL weighted_activation_backward_kernel(Global<const std::int32_t> slot, Global<const T> dy, Global<const T> up, Global<const Acc<T>> w,
                                               Global<T> dup, Global<Acc<T>> dw) {
  using A = Acc<T>;
  each_row(dy.rows(), [&](Index p) {
    const A weight = w.load(slot.load(p));
    A along = 0;
    each_column<N>(dy.columns(), [&](Index f) {
      const auto in = up.template load_pack<N>(p, f), dout = dy.template load_pack<N>(p, f);
      Pack<T, N> out;
      for (int i = 0; i < N; ++i) {
        along += A(dout.at[i]) * activation_at<a>(A(in.at[i]));
        out.at[i] = T(weight * A(dout.at[i]) * activation_slope<a>(A(in.at[i])));
      }
      dup.template store_pack<N>(p, f, out);
    });
    along = warp_sum(along);
    if (lane() == 0) dw.store(slot.load(p), along);
  });
}

template <class T>
GYR_KERNEL add_weighted_bias_kernel(Global<const std::int32_t> slot, Global<const Acc<T>> w, Global<const Acc<T>> bias, Global<T> y) {
  using A = Acc<T>;
  each_row(y.rows(), [&](Index p) {
    const A weight = w.load(slot.load(p));
    each_column<1>(y.columns(), [&](Index c) { y.store(p, c, T(A(y.load(p, c)) + weight * bias.load(c))); });
  });
}

template <class T>
GYR_KERNEL weighted_bias_backward_kernel(Global<const std::int32_t> slot, Global<const T> dy, Global<const Acc<T>> w, Global<const Acc<T>> bias,
                                         Global<Acc<T>> dw, Global<T> terms) {
  using A = Acc<T>;
  each_row(dy.rows(), [&](Index p) {
    const A weight = w.load(slot.load(p));
    A along = 0;
    each_column<1>(dy.columns(), [&](Index c) {
      const A d = A(dy.load(p, c));
      along += d * bias.load(c);
      terms.store(p, c, T(weight * d));
    });
    along = warp_sum(along);
    if (dw && lane() == 0) dw.store(slot.load(p), dw.load(slot.load(p)) + along);
  });
}

}  // namespace

void group_rows(Device& dev, Tensor2<const std::int32_t> chosen, const ExpertRows& rows) {
  const Grid grid = grid_of_experts(rows.count.extent(0));
  launch(dev, "count_rows", grid, count_rows_kernel, flat(chosen), rows.count);
  launch(dev, "place_rows", grid, place_rows_kernel, flat(chosen), Tensor1<const std::int32_t>(rows.count), flat(rows.place), rows.slot);
}

template <class T>
void gather_rows(Device& dev, const ExpertRows& rows, Tensor2<const T> x, Tensor2<T> y) {
  const Global<const T> from(x);
  const Global<T> to(y);
  with_packs<T>(
      [&](auto n) {
        launch(dev, "gather_rows", grid_of_rows(to), gather_rows_kernel<T, n>, Tensor1<const std::int32_t>(rows.slot), Index(rows.place.extent(1)),
               from, to);
      },
      from, to);
}

template <class T>
void combine_rows(Device& dev, const ExpertRows& rows, Tensor2<const T> x, Add add, Tensor2<T> y) {
  const Global<const T> from(x);
  const Global<T> to(y);
  with_packs<T>(
      [&](auto n) {
        launch(dev, "combine_rows", grid_of_rows(to), combine_rows_kernel<T, n>, Tensor2<const std::int32_t>(rows.place), from, add == Add::yes, to);
      },
      from, to);
}

template <class T>
void weighted_glu(Device& dev, Activation a, const ExpertRows& rows, Tensor2<const T> gate_up, Tensor2<const Acc<T>> w, Tensor2<T> y) {
  const Global<const T> in(gate_up);
  const Global<T> out(y);
  const Tensor1<const std::int32_t> slot = rows.slot;
  with_activation(a, [&](auto which) {
    with_packs<T>(
        [&](auto n) {
          const auto kernel = gate_up.extent(1) == y.extent(1) ? weighted_activation_kernel<which(), T, n> : weighted_glu_kernel<which(), T, n>;
          launch(dev, "weighted_glu", grid_of_rows(out), kernel, slot, in, flat(w), out);
        },
        in, out);
  });
}

template <class T>
void weighted_glu_backward(Device& dev, Activation a, const ExpertRows& rows, Tensor2<const T> dy, Tensor2<const T> gate_up, Tensor2<const Acc<T>> w,
                           Tensor2<T> dgate_up, Tensor2<Acc<T>> dw) {
  const Global<const T> dout(dy), in(gate_up);
  const Global<T> din(dgate_up);
  const Tensor1<const std::int32_t> slot = rows.slot;
  with_activation(a, [&](auto which) {
    with_packs<T>(
        [&](auto n) {
          const auto kernel = gate_up.extent(1) == dy.extent(1) ? weighted_activation_backward_kernel<which(), T, n>
                                                                : weighted_glu_backward_kernel<which(), T, n>;
          launch(dev, "weighted_glu_backward", grid_of_rows(dout), kernel, slot, dout, in, flat(w), din, flat(dw));
        },
        dout, in, din);
  });
}

template <class T>
void add_weighted_bias(Device& dev, Tensor1<const std::int32_t> slot, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias, Tensor2<T> y) {
  const Global<T> to(y);
  launch(dev, "add_weighted_bias", grid_of_rows(to), add_weighted_bias_kernel<T>, slot, flat(w), bias, to);
}

template <class T>
void weighted_bias_backward(Device& dev, Tensor1<const std::int32_t> slot, Tensor2<const T> dy, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias,
                            Tensor2<Acc<T>> dw, Tensor2<T> terms) {
  const Global<const T> from(dy);
  launch(dev, "weighted_bias_backward", grid_of_rows(from), weighted_bias_backward_kernel<T>, slot, from, flat(w), bias, flat(dw), Global<T>(terms));
}

GYR_SCALARS(GYR_EXPERT_ROWS)

}  // namespace gyr::backend
