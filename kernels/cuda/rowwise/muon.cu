// SPDX-License-Identifier: BSD-3-Clause
// CUDA kernels of Muon. kernels/ops/updates/muon.hpp has the formulas.
#include "kernels/base/instances.hpp"
#include "kernels/cuda/rowwise/rows.hpp"
#include "kernels/ops/updates/muon.hpp"

namespace gyr::backend {

using namespace cuda;

namespace {

template <class A>
GYR_DEVICE MuonElement<A> muon_in_step(MuonElement<A> element, const Global<const A>& values) {
  const auto now = values.template load_pack<4>(0, 0);
  element.set(now.at);
  return element;
}

template <class A, int N>
GYR_KERNEL muon_momentum_kernel(MuonElement<A> stays, Global<const A> values, Global<const A> g, Global<A> b) {
  const MuonElement<A> element = muon_in_step(stays, values);
  each_pack<N>(b, [&](Index r, Index c) {
    const auto gradient = g.template load_pack<N>(r, c);
    auto momentum = b.template load_pack<N>(r, c);
    for (int i = 0; i < N; ++i) momentum.at[i] = element.advance(gradient.at[i], momentum.at[i]);
    b.template store_pack<N>(r, c, momentum);
  });
}

template <class A, int N>
GYR_KERNEL muon_direction_kernel(MuonElement<A> stays, Global<const A> values, Global<const A> g, Global<const A> b, Global<A> u) {
  const MuonElement<A> element = muon_in_step(stays, values);
  each_pack<N>(u, [&](Index r, Index c) {
    const auto gradient = g.template load_pack<N>(r, c), momentum = b.template load_pack<N>(r, c);
    Pack<A, N> direction;
    for (int i = 0; i < N; ++i) direction.at[i] = element.direction(gradient.at[i], momentum.at[i]);
    u.template store_pack<N>(r, c, direction);
  });
}

template <class A, int N>
GYR_KERNEL divide_by_norm_kernel(Global<const double> sum, Global<A> x) {
  const double root = std::sqrt(sum.load(0)), norm = root > 1e-7 ? root : 1e-7;
  each_pack<N>(x, [&](Index r, Index c) {
    auto pack = x.template load_pack<N>(r, c);
    for (int i = 0; i < N; ++i) pack.at[i] = A(double(pack.at[i]) / norm);
    x.template store_pack<N>(r, c, pack);
  });
}

template <class T, int N>
GYR_KERNEL muon_step_kernel(MuonElement<Acc<T>> stays, Global<const Acc<T>> values, Global<const Acc<T>> o, Global<Acc<T>> master, Global<T> w) {
  const MuonElement<Acc<T>> element = muon_in_step(stays, values);
  each_pack<N>(master, [&](Index r, Index c) {
    const auto orthogonal = o.template load_pack<N>(r, c);
    auto exact = master.template load_pack<N>(r, c);
    Pack<T, N> narrow;
    for (int i = 0; i < N; ++i) {
      exact.at[i] = element.updated(exact.at[i], orthogonal.at[i]);
      narrow.at[i] = T(exact.at[i]);
    }
    master.template store_pack<N>(r, c, exact);
    if (w) w.template store_pack<N>(r, c, narrow);
  });
}

}  // namespace

template <class A>
void muon_momentum(Device& dev, const Muon& rule, Tensor1<const A> values, Tensor1<const A> g, Tensor1<A> b) {
  const Global<const A> gradient(g);
  const Global<A> momentum(b);
  with_packs<A>(
      [&](auto n) {
        launch(dev, "muon_momentum", grid_of<n>(momentum), muon_momentum_kernel<A, n>, MuonElement<A>(rule), Global<const A>(values), gradient,
               momentum);
      },
      gradient, momentum);
}

template <class A>
void muon_direction(Device& dev, const Muon& rule, Tensor1<const A> values, Matrix<const A> g, Matrix<const A> b, Matrix<A> u) {
  const Global<const A> gradient(g), momentum(b);
  const Global<A> direction(u);
  with_packs<A>(
      [&](auto n) {
        launch(dev, "muon_direction", grid_of<n>(direction), muon_direction_kernel<A, n>, MuonElement<A>(rule), Global<const A>(values), gradient,
               momentum, direction);
      },
      gradient, momentum, direction);
}

template <class A>
void divide_by_norm(Device& dev, Tensor1<const double> sum, Tensor1<A> x) {
  const Global<A> all(x);
  with_packs<A>([&](auto n) { launch(dev, "divide_by_norm", grid_of<n>(all), divide_by_norm_kernel<A, n>, Global<const double>(sum), all); }, all);
}

template <class T>
void muon_step(Device& dev, const Muon& rule, Tensor1<const Acc<T>> values, Matrix<const Acc<T>> o, Matrix<Acc<T>> master, Matrix<T> w) {
  using A = Acc<T>;
  Global<A> exact(master);
  Global<T> narrow(w);
  if constexpr (std::is_same_v<T, A>)
    if (!master.data) exact = narrow, narrow = {};
  const Global<const A> orthogonal(o);
  with_packs<A>(
      [&](auto n) {
        launch(dev, "muon_step", grid_of<n>(exact), muon_step_kernel<T, n>, MuonElement<A>(rule), Global<const A>(values), orthogonal, exact, narrow);
      },
      orthogonal, exact, narrow);
}

GYR_ALL_MUON

}  // namespace gyr::backend
