// SPDX-License-Identifier: BSD-3-Clause
// LAMB (You et al. 2020): Adam's direction, scaled for every weight by the ratio of the weight's norm to the direction's.
// The norms are those of the logical weight: an expert's matrix and each of q, k and v count alone, in_proj as one.
#include "kernels/ops/updates/lamb.hpp"
#include "modules/optimizers/update_rule.hpp"

namespace gyr {
namespace {

class LambRule final : public UpdateRule {
 public:
  LambRule(const Lamb& lamb, bool excludes_vectors) : lamb_(lamb), excludes_vectors_(excludes_vectors) {}

  std::string_view name() const override { return "lamb"; }
  std::vector<std::string_view> states() const override { return {"first_moment", "second_moment"}; }
  double values_moved() const override { return 10; }
  bool needs_sums(const Weight& w) const override { return w.decays || !excludes_vectors_; }
  UpdateValues values(const StepOfWeight& step) const override { return lamb_.values(step); }

  void add_sums(Device& dev, const WeightUpdate& u, Tensor1<double> sums) const override {
    with_type(u.weight.dtype, [&]<class T>(std::type_identity<T>) {
      using A = Acc<T>;
      lamb_moments<A>(dev, lamb_, u.values.as<const A>(), u.gradient.as<const A>(), u.states[0].as<A>(), u.states[1].as<A>(), u.exact().as<const A>(),
                      sums);
    });
  }

  void update(Device& dev, const WeightUpdate& u) const override {
    if (!u.sums.data()) add_sums(dev, u, {});
    with_type(u.weight.dtype, [&]<class T>(std::type_identity<T>) {
      using A = Acc<T>;
      const Tensor1<A> master = u.master ? u.master.as<A>() : Tensor1<A>();
      lamb_step<T>(dev, lamb_, u.values.as<const A>(), u.sums, u.states[0].as<const A>(), u.states[1].as<const A>(), master, u.weight.as<T>());
    });
  }

 private:
  Lamb lamb_;
  bool excludes_vectors_;
};

Rule read_lamb(Section& optimizer, const NamedRule&) {
  const AdamSettings a = read_adam(optimizer);
  Section& s = optimizer.section("lamb", "settings of optimizer.name = lamb");
  Lamb lamb{a.beta1, a.beta2, a.epsilon};
  lamb.min_ratio = s.get("min_ratio", 0.0, "smallest ratio of the norms of weight and direction; 0: no bound").at_least(0);
  auto most = s.get("max_ratio", 0.0, "largest ratio of the norms; 0: no bound").at_least(0);
  lamb.max_ratio = most.must("0, or at least optimizer.lamb.min_ratio", most.value() == 0 || most.value() >= lamb.min_ratio).value();
  const std::string exclude =
      s.get("exclude", "vectors", "weights that are updated as by Adam, with ratio 1; vectors: norms, biases and all others that do not decay")
          .one_of({"vectors", "none"})
          .value();
  return std::make_shared<LambRule>(lamb, exclude == "vectors");
}

const RegisteredRule registered_lamb(
    {"lamb", "AdamW scaled by the norms of each weight, for large batches", read_lamb, {"beta1", "beta2", "epsilon"}});

}  // namespace
}  // namespace gyr
