// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/updates/weight_update.hpp"

#include <cmath>

#include "kernels/base/instances.hpp"

namespace gyr {

UpdateValues AdamW::values(const StepOfWeight& s) const {
  const double correction1 = 1 - std::pow(beta1, s.number), correction2 = 1 - std::pow(beta2, s.number);
  return {1 - s.lr * s.weight_decay, s.lr / correction1, 1 / std::sqrt(correction2), s.gradient_scale};
}

UpdateValues Lion::values(const StepOfWeight& s) const { return {1 - s.lr * s.weight_decay, s.lr, s.gradient_scale}; }

UpdateValues Sgd::values(const StepOfWeight& s) const { return {1 - s.lr * s.weight_decay, s.lr, s.gradient_scale}; }

template <class T, class Rule>
void update_weights(Device& dev, const Rule& rule, Tensor1<const Acc<T>> values, Tensor1<const Acc<T>> g, const UpdateStates<Acc<T>, Rule>& states,
                    Tensor1<Acc<T>> master, Tensor1<T> w) {
  using A = Acc<T>;
  const Index n = w.extent(0);
  const bool no_master = master.data() == nullptr;
  ensure(Index(g.extent(0)) == n && (no_master || Index(master.extent(0)) == n), "{}: {} weights do not fit {} gradients and {} master weights",
         Rule::name, n, g.extent(0), master.extent(0));
  for (const Tensor1<A>& state : states) ensure(Index(state.extent(0)) == n, "{}: {} weights do not fit {} states", Rule::name, n, state.extent(0));
  ensure(values.extent(0) == update_values, "{}: the step has {} values, expected {}", Rule::name, values.extent(0), update_values);
  ensure(!no_master || std::is_same_v<T, A>, "{}: bf16 weights need fp32 master weights", Rule::name);
  const double moved = (3.0 + 2 * Rule::states) * sizeof(A) + (no_master ? 0 : sizeof(T));
  if (const auto run = dev.launch(Rule::name, double(Rule::flops) * n, moved * n))
    backend::update_weights<T>(dev, rule, values, g, states, master, w);
}

GYR_ALL_UPDATES

}  // namespace gyr
