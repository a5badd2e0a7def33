// SPDX-License-Identifier: BSD-3-Clause
// Rules that treat every element alone: they need a formula (kernels/ops/updates/weight_update.hpp) and the names of its states.
#pragma once

#include "kernels/ops/updates/weight_update.hpp"
#include "modules/optimizers/update_rule.hpp"

namespace gyr {

template <class Formula>
class RuleByElement : public UpdateRule {
 public:
  RuleByElement(const Formula& formula, std::vector<std::string_view> states) : formula_(formula), states_(std::move(states)) {
    ensure(states_.size() == std::size_t(Formula::states), "{} keeps {} states, but {} are named", Formula::name, Formula::states, states_.size());
  }

  std::string_view name() const override { return Formula::name; }
  std::vector<std::string_view> states() const override { return states_; }
  double values_moved() const override { return 3 + 2 * Formula::states; }
  UpdateValues values(const StepOfWeight& step) const override { return formula_.values(step); }
  void update(Device& dev, const WeightUpdate& u) const override {
    with_type(u.weight.dtype, [&]<class T>(std::type_identity<T>) {
      using A = Acc<T>;
      UpdateStates<A, Formula> kept;
      for (std::size_t k = 0; k < kept.size(); ++k) kept[k] = u.states[k].as<A>();
      const Tensor1<A> master = u.master ? u.master.as<A>() : Tensor1<A>();
      update_weights<T>(dev, formula_, u.values.as<const A>(), u.gradient.as<const A>(), kept, master, u.weight.as<T>());
    });
  }

 private:
  Formula formula_;
  std::vector<std::string_view> states_;
};

}  // namespace gyr
