// SPDX-License-Identifier: BSD-3-Clause
// Objective value: a critic learns the returns of a policy (value_loss.hpp), and values the rows of answers. It is trained beside the policy. Its
// scalar head is that of a reward model.
#include "modules/objectives/objective.hpp"
#include "modules/objectives/value_loss.hpp"

namespace gyr {

namespace {

class Value final : public Objective {
 public:
  explicit Value(double clip) : clip_(clip) {}
  const char* name() const override { return "value"; }
  bool gives_values() const override { return true; }
  bool repeats() const override { return true; }

  Labelled label(const SampleView& s) const override {
    return {{s.tokens.begin(), s.tokens.end() - 1}, next_tokens(s.tokens, s.learned), {}, s.values};
  }
  std::vector<NamedField> fields(const ModelConfig&, Index) const override {
    std::vector<NamedField> all;
    for (const ValueName<double>& name : {value_field::value, value_field::returns, value_field::weight}) all.push_back(ValueField<double>{name, 0});
    return all;
  }
  // The second sum counts the clipped rows and has no gradient. The weights of the rows add up to 1.
  std::vector<LossSum> losses() const override { return std::vector<LossSum>(2); }
  double scale(const LossSum&, Index) const override { return 1; }
  double reported(double sum, Index) const override { return sum; }
  void check_training(const ModelConfig&) const override {
    fail(Exit::config, "train.objective = value: values are learnt beside a policy; set train.objective: policy and rl.algorithm: ppo");
  }
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter*, Parameters& parameters) const override {
    Output output = output_of_values;
    output.begins_at_zero = true;
    return make_typed<Head, ValueHead>(parameters.dtype(), c, output, clip_, parameters);
  }
  double flops(const ModelConfig& c) const override { return 2.0 * double(c.hidden_size); }

 private:
  double clip_;
};

std::shared_ptr<const Objective> read_value(Section&, const ModelConfig&, const Objective&) { return value(0); }

const RegisteredObjective registered_value({"value", "critic: the expected return after each token, learnt beside a policy (rl.algorithm: ppo)",
                                            read_value});

}  // namespace

std::shared_ptr<const Objective> value(double clip) { return std::make_shared<const Value>(clip); }

}  // namespace gyr
