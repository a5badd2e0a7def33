// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels of the LAMB update. kernels/ops/updates/lamb.hpp has the formula.
#include "kernels/ops/updates/lamb.hpp"
#include "kernels/base/instances.hpp"

#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

namespace {

template <class A>
KOKKOS_INLINE_FUNCTION LambElement<A> in_step(LambElement<A> element, const A* values) {
  element.set(values);
  return element;
}

// sums(k) += partial(k, 0) + partial(k, 1) + ..., in order
void add_partial(Device& dev, Tensor1<double> partial, Tensor1<double> sums) {
  const Index strips = partial.extent(0) / 2;
  for_teams(
      "lamb_moments", dev, 2, KOKKOS_LAMBDA(const Team& team, Index k) {
        once(team, [&] {
          double t = 0;
          for (Index s = 0; s < strips; ++s) t += partial(k * strips + s);
          sums(k) += t;
        });
      });
}

}  // namespace

Index lamb_strips(Index elements) { return ceil_div(elements, strip); }

template <class A>
void lamb_moments(Device& dev, const Lamb& rule, Tensor1<const A> values, Tensor1<const A> g, Tensor1<A> m, Tensor1<A> v, Tensor1<const A> w,
                  Tensor1<double> sums, Tensor1<double> partial) {
  const Index n = w.extent(0), strips = lamb_strips(n);
  const LambElement<A> stays(rule);
  const A* const now = values.data();
  for_teams(
      "lamb_moments", dev, strips, KOKKOS_LAMBDA(const Team& team, Index s) {
        const Index begin = s * strip, count = least(strip, n - begin);
        const LambElement<A> element = in_step(stays, now);
        const A *const gradient = g.data() + begin, *const weight = w.data() + begin;
        A *const first = m.data() + begin, *const second = v.data() + begin;
        each(team, count, [=](Index i) { element.advance(gradient[i], first[i], second[i]); });
        if (!sums.data()) return;
        const double weights = sum<double>(team, count, [=](Index i, double& t) { t += double(weight[i]) * double(weight[i]); });
        const double directions = sum<double>(team, count, [=](Index i, double& t) {
          const double r = double(element.direction(first[i], second[i], weight[i]));
          t += r * r;
        });
        once(team, [&] { partial(s) = weights, partial(strips + s) = directions; });
      });
  if (sums.data()) add_partial(dev, partial, sums);
}

template <class T>
void lamb_step(Device& dev, const Lamb& rule, Tensor1<const Acc<T>> values, Tensor1<const double> sums, Tensor1<const Acc<T>> m,
               Tensor1<const Acc<T>> v, Tensor1<Acc<T>> master, Tensor1<T> w) {
  using A = Acc<T>;
  const Index n = w.extent(0);
  const LambElement<A> stays(rule);
  const A* const now = values.data();
  for_teams(
      "lamb_step", dev, ceil_div(n, strip), KOKKOS_LAMBDA(const Team& team, Index s) {
        const Index begin = s * strip, count = least(strip, n - begin);
        const LambElement<A> element = in_step(stays, now);
        const A step = element.lr * (sums.data() ? element.ratio(sums(0), sums(1)) : A(1));
        const A *const first = m.data() + begin, *const second = v.data() + begin;
        T* const to = w.data() + begin;
        if constexpr (std::is_same_v<T, A>) {
          if (!master.data()) {
            each(team, count, [=](Index i) { to[i] -= step * element.direction(first[i], second[i], to[i]); });
            return;
          }
        }
        A* const exact = master.data() + begin;
        each(team, count, [=](Index i) {
          exact[i] -= step * element.direction(first[i], second[i], exact[i]);
          to[i] = T(exact[i]);
        });
      });
}

GYR_ALL_BACKEND_LAMB

}  // namespace gyr::backend
