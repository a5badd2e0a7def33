// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/adamw.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

template <class A>
AdamWStepValues<A> step_values(const AdamWStep& s) {
  return {A(1 - s.lr * s.weight_decay), A(s.lr / s.correction1), A(1 / std::sqrt(s.correction2)), A(s.gradient_scale)};
}

template <class A>
AdamWUpdate<A>::AdamWUpdate(const AdamW& a)
    : beta1(A(a.beta1)), gain1(A(1 - a.beta1)), beta2(A(a.beta2)), gain2(A(1 - a.beta2)), epsilon(A(a.epsilon)) {}

template <class T>
void adamw(Device& dev, const AdamW& rule, Tensor1<const Acc<T>> step, Tensor1<const Acc<T>> g, Tensor1<Acc<T>> m, Tensor1<Acc<T>> v,
           Tensor1<Acc<T>> master, Tensor1<T> w) {
  using A = Acc<T>;
  const Index n = w.extent(0);
  const bool no_master = master.data() == nullptr;
  ensure(Index(g.extent(0)) == n && Index(m.extent(0)) == n && Index(v.extent(0)) == n && (no_master || Index(master.extent(0)) == n),
         "adamw: {} parameters do not fit {} gradients, {} and {} moments and {} master weights", n, g.extent(0), m.extent(0), v.extent(0),
         master.extent(0));
  ensure(step.extent(0) == AdamWStepValues<A>().size(), "adamw: the step has {} values, expected 4", step.extent(0));
  ensure(!no_master || std::is_same_v<T, A>, "adamw: bf16 parameters need fp32 master weights");
  if (const auto run = dev.launch("adamw", 15.0 * n, (7.0 * sizeof(A) + (no_master ? 0 : sizeof(T))) * n))
    backend::adamw<T>(dev, rule, step, g, m, v, master, w);
}

template AdamWStepValues<double> step_values<double>(const AdamWStep&);
template AdamWStepValues<float> step_values<float>(const AdamWStep&);
template struct AdamWUpdate<double>;
template struct AdamWUpdate<float>;
GYR_SCALARS(GYR_ADAMW)

}  // namespace gyr
