// SPDX-License-Identifier: BSD-3-Clause
// An update rule of the tests only: gradient descent with momentum that also adds up all gradients. It is declared in
// this file alone, as a new rule is, and takes part in every test of all registered rules.
#include "kernels/ops/elementwise.hpp"
#include "kernels/ops/updates/weight_update.hpp"
#include "modules/optimizers/update_rule.hpp"

namespace gyr::testing {
namespace {

class SummingRule final : public UpdateRule {
 public:
  std::string_view name() const override { return "summing"; }
  std::vector<std::string_view> states() const override { return {"velocity", "summed_gradient"}; }
  double values_moved() const override { return 8; }
  UpdateValues values(const StepOfWeight& step) const override { return formula_.values(step); }
  void update(Device& dev, const WeightUpdate& u) const override {
    with_type(u.weight.dtype, [&]<class T>(std::type_identity<T>) {
      using A = Acc<T>;
      const Tensor1<A> master = u.master ? u.master.as<A>() : Tensor1<A>();
      update_weights<T>(dev, formula_, u.values.as<const A>(), u.gradient.as<const A>(), {u.states[0].as<A>()}, master, u.weight.as<T>());
      add<A>(dev, u.gradient.as<const A>(), u.states[1].as<A>());
    });
  }

 private:
  Sgd formula_{0.5, true};
};

const RegisteredRule summing({"summing", "momentum, and the sum of all gradients",
                              [](Section&, const NamedRule&) -> Rule { return std::make_shared<SummingRule>(); }});

}  // namespace
}  // namespace gyr::testing
