// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/adamw.hpp"

#include "kernels/kokkos/rows.hpp"

namespace gyr {

namespace {

// The update of one element, with the constants of a step folded once:
//   w (1 - lr decay) - (lr/c1) m / (sqrt(v) / sqrt(c2) + eps)
template <class A>
struct Update {
  A keep, step, beta1, gain1, beta2, gain2, root_correction, epsilon, gradient_scale;

  explicit Update(const AdamW& a)
      : keep(A(1 - a.lr * a.weight_decay)), step(A(a.lr / a.correction1)), beta1(A(a.beta1)), gain1(A(1 - a.beta1)), beta2(A(a.beta2)),
        gain2(A(1 - a.beta2)), root_correction(A(1 / std::sqrt(a.correction2))), epsilon(A(a.epsilon)), gradient_scale(A(a.gradient_scale)) {}

  KOKKOS_INLINE_FUNCTION A operator()(A gradient, A& m, A& v, A w) const {
    const A g = gradient_scale * gradient;
    m = beta1 * m + gain1 * g;
    v = beta2 * v + gain2 * g * g;
    return keep * w - step * m / (std::sqrt(v) * root_correction + epsilon);
  }
};

}  // namespace

template <class T>
void adamw(Device& dev, const AdamW& step, Tensor1<const Acc<T>> g, Tensor1<Acc<T>> m, Tensor1<Acc<T>> v, Tensor1<Acc<T>> master, Tensor1<T> w) {
  using A = Acc<T>;
  const Index n = w.extent(0);
  const bool own = master.data() == nullptr;
  ensure(Index(g.extent(0)) == n && Index(m.extent(0)) == n && Index(v.extent(0)) == n && (own || Index(master.extent(0)) == n),
         "adamw of {} parameters with {} gradients, {} and {} moments, {} masters", n, g.extent(0), m.extent(0), v.extent(0), master.extent(0));
  ensure(!own || std::is_same_v<T, A>, "adamw of parameters that cannot be their own master");
  const auto run = dev.launch("adamw", 15.0 * n, (7.0 * sizeof(A) + (own ? 0 : sizeof(T))) * n);
  if (!run) return;
  const Update<A> update(step);
  const A* const from = g.data();
  A *const first = m.data(), *const second = v.data();
  T* const to = w.data();
  if constexpr (std::is_same_v<T, A>) {
    if (own) {
      for_flat(
          "adamw", dev, n, KOKKOS_LAMBDA(Index i) { to[i] = update(from[i], first[i], second[i], to[i]); });
      return;
    }
  }
  A* const exact = master.data();
  for_flat(
      "adamw", dev, n, KOKKOS_LAMBDA(Index i) {
        exact[i] = update(from[i], first[i], second[i], exact[i]);
        to[i] = T(exact[i]);
      });
}

template <class A>
double sum_of_squares(Device& dev, Tensor1<const A> x) {
  const Index n = x.extent(0), strips = ceil_div(n, strip);
  const Workspace workspace(dev.scratch, "sum_of_squares");
  const auto partial = dev.scratch.tensor<double>(strips);
  const auto total = dev.scratch.tensor<double>(1);
  const auto run = dev.launch("sum_of_squares", 2.0 * n, double(sizeof(A)) * n);
  if (!run) return 0;
  for_teams(
      "sum_of_squares", dev, strips, KOKKOS_LAMBDA(const Team& team, Index s) {
        const A* const from = x.data() + s * strip;
        const double squares = sum<double>(team, least(strip, n - s * strip), [=](Index i, double& t) { t += double(from[i]) * double(from[i]); });
        once(team, [&] { partial(s) = squares; });
      });
  for_teams(
      "sum_of_squares", dev, 1, KOKKOS_LAMBDA(const Team& team, Index) {
        once(team, [&] {
          double t = 0;
          for (Index s = 0; s < strips; ++s) t += partial(s);
          total(0) = t;
        });
      });
  double result = 0;
  Kokkos::deep_copy(dev.exec, Kokkos::View<double, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(&result),
                    Kokkos::View<const double, Space::memory_space, Kokkos::MemoryUnmanaged>(total.data()));
  dev.exec.fence();
  return result;
}

template void adamw<double>(Device&, const AdamW&, Tensor1<const double>, Tensor1<double>, Tensor1<double>, Tensor1<double>, Tensor1<double>);
template void adamw<float>(Device&, const AdamW&, Tensor1<const float>, Tensor1<float>, Tensor1<float>, Tensor1<float>, Tensor1<float>);
template void adamw<bf16>(Device&, const AdamW&, Tensor1<const float>, Tensor1<float>, Tensor1<float>, Tensor1<float>, Tensor1<bf16>);
template double sum_of_squares<double>(Device&, Tensor1<const double>);
template double sum_of_squares<float>(Device&, Tensor1<const float>);

}  // namespace gyr
