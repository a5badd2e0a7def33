// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/updates/lamb.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

UpdateValues Lamb::values(const StepOfWeight& s) const {
  const double correction1 = 1 - std::pow(beta1, s.number), correction2 = 1 - std::pow(beta2, s.number);
  return {s.lr, s.weight_decay, 1 / correction1, 1 / std::sqrt(correction2), s.gradient_scale};
}

template <class A>
void lamb_moments(Device& dev, const Lamb& rule, Tensor1<const A> values, Tensor1<const A> g, Tensor1<A> m, Tensor1<A> v, Tensor1<const A> w,
                  Tensor1<double> sums) {
  const Index n = w.extent(0);
  ensure(Index(g.extent(0)) == n && Index(m.extent(0)) == n && Index(v.extent(0)) == n, "lamb: {} weights do not fit {} gradients, {} and {} moments",
         n, g.extent(0), m.extent(0), v.extent(0));
  ensure(values.extent(0) == update_values && (!sums.data() || sums.extent(0) == 2), "lamb: the step has {} values and {} sums, expected {} and 2",
         values.extent(0), sums.extent(0), update_values);
  Scope scope(dev.scratch);
  const auto partial = dev.scratch.tensor<double>(2 * backend::lamb_strips(n));
  if (const auto run = dev.launch("lamb_moments", 20.0 * n, 6.0 * sizeof(A) * n))
    backend::lamb_moments<A>(dev, rule, values, g, m, v, w, sums, partial);
}

template <class T>
void lamb_step(Device& dev, const Lamb& rule, Tensor1<const Acc<T>> values, Tensor1<const double> sums, Tensor1<const Acc<T>> m,
               Tensor1<const Acc<T>> v, Tensor1<Acc<T>> master, Tensor1<T> w) {
  const Index n = w.extent(0);
  const bool no_master = master.data() == nullptr;
  ensure(Index(m.extent(0)) == n && Index(v.extent(0)) == n && (no_master || Index(master.extent(0)) == n),
         "lamb: {} weights do not fit {} and {} moments and {} master weights", n, m.extent(0), v.extent(0), master.extent(0));
  ensure(values.extent(0) == update_values && (!sums.data() || sums.extent(0) == 2), "lamb: the step has {} values and {} sums, expected {} and 2",
         values.extent(0), sums.extent(0), update_values);
  ensure(!no_master || std::is_same_v<T, Acc<T>>, "lamb: bf16 weights need fp32 master weights");
  if (const auto run = dev.launch("lamb_step", 12.0 * n, (4.0 * sizeof(Acc<T>) + (no_master ? 0 : sizeof(T))) * n))
    backend::lamb_step<T>(dev, rule, values, sums, m, v, master, w);
}

GYR_ALL_LAMB

}  // namespace gyr
