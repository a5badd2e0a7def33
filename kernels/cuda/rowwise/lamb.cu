// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels of the LAMB update. kernels/ops/updates/lamb.hpp has the formula.
#include "kernels/base/instances.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/ops/updates/lamb.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

constexpr Index strip = 16384;  // elements whose squares one block adds up

template <class A>
GYR_DEVICE LambElement<A> in_step(LambElement<A> element, const Global<const A>& values) {
  const auto first = values.template load_pack<4>(0, 0), rest = values.template load_pack<4>(0, 4);
  const A now[] = {first.at[0], first.at[1], first.at[2], first.at[3], rest.at[0]};
  element.set(now);
  return element;
}

// A thread takes one element at a time: the first pass moves as many bytes as its loads allow even so, because a warp
// loads adjacent elements.
template <class A>
GYR_KERNEL moments_kernel(LambElement<A> stays, Global<const A> values, Global<const A> g, Global<A> m, Global<A> v, Global<const A> w,
                          Global<double> partial) {
  const Shared<double> storage;
  const LambElement<A> element = in_step(stays, values);
  const Index b = block_index(), last = (b + 1) * strip < w.columns() ? (b + 1) * strip : w.columns();
  double weights = 0, directions = 0;
  for (Index i = b * strip + thread_index(); i < last; i += block_threads()) {
    A first = m.load(i), second = v.load(i);
    const A weight = w.load(i);
    element.advance(g.load(i), first, second);
    m.store(i, first), v.store(i, second);
    const double r = double(element.direction(first, second, weight));
    weights += double(weight) * double(weight), directions += r * r;
  }
  weights = block_sum(weights, storage);
  sync_block();
  directions = block_sum(directions, storage);
  if (thread_index() == 0) partial.store(b, weights), partial.store(partial.columns() / 2 + b, directions);
}

GYR_KERNEL add_partial_kernel(Global<const double> partial, Global<double> sums) {
  const Shared<double> storage;
  const Index strips = partial.columns() / 2;
  for (int k = 0; k < 2; ++k) {
    double t = 0;
    for (Index s = thread_index(); s < strips; s += block_threads()) t += partial.load(k * strips + s);
    t = block_sum(t, storage);
    if (thread_index() == 0) sums.store(k, sums.load(k) + t);
    sync_block();
  }
}

// master: master weight, of which w receives a rounded copy. If there is no separate master weight, `master` is the
// weight itself and w is empty.
template <class T, int N>
GYR_KERNEL step_kernel(LambElement<Acc<T>> stays, Global<const Acc<T>> values, Global<const double> sums, Global<const Acc<T>> m,
                       Global<const Acc<T>> v, Global<Acc<T>> master, Global<T> w) {
  const LambElement<Acc<T>> element = in_step(stays, values);
  const Acc<T> step = element.lr * (sums ? element.ratio(sums.load(0), sums.load(1)) : Acc<T>(1));
  each_pack<N>(master, [&](Index r, Index c) {
    const auto first = m.template load_pack<N>(r, c), second = v.template load_pack<N>(r, c);
    auto exact = master.template load_pack<N>(r, c);
    Pack<T, N> narrow;
    for (int i = 0; i < N; ++i) {
      exact.at[i] -= step * element.direction(first.at[i], second.at[i], exact.at[i]);
      narrow.at[i] = T(exact.at[i]);
    }
    master.template store_pack<N>(r, c, exact);
    if (w) w.template store_pack<N>(r, c, narrow);
  });
}

}  // namespace

Index lamb_strips(Index elements) { return ceil_div(elements, strip); }

template <class A>
void lamb_moments(Device& dev, const Lamb& rule, Tensor1<const A> values, Tensor1<const A> g, Tensor1<A> m, Tensor1<A> v, Tensor1<const A> w,
                  Tensor1<double> sums, Tensor1<double> partial) {
  const Index strips = lamb_strips(w.extent(0));
  if (strips == 0) return;
  const int storage = usual_warps * int(sizeof(double));
  launch(dev, "lamb_moments", {strips, usual_threads, storage}, moments_kernel<A>, LambElement<A>(rule), values, g, m, v, w, partial);
  if (sums.data()) launch(dev, "lamb_moments", {1, usual_threads, storage}, add_partial_kernel, Tensor1<const double>(partial), sums);
}

template <class T>
void lamb_step(Device& dev, const Lamb& rule, Tensor1<const Acc<T>> values, Tensor1<const double> sums, Tensor1<const Acc<T>> m,
               Tensor1<const Acc<T>> v, Tensor1<Acc<T>> master, Tensor1<T> w) {
  using A = Acc<T>;
  Global<A> exact(master);
  Global<T> narrow(w);
  if constexpr (std::is_same_v<T, A>)
    if (!master.data()) exact = narrow, narrow = {};
  const Global<const A> first(m), second(v);
  with_packs<A>(
      [&](auto n) {
        launch(dev, "lamb_step", grid_of<n>(exact), step_kernel<T, n>, LambElement<A>(rule), values, Global<const double>(sums), first, second, exact,
               narrow);
      },
      first, second, exact, narrow);
}

GYR_ALL_BACKEND_LAMB

}  // namespace gyr::backend
