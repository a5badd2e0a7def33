// SPDX-License-Identifier: BSD-3-Clause
// Objective policy: a language model learns from rewards of answers that it wrote itself (policy_loss.hpp). The values of the rows,
// such as advantages, come with the samples.
#include "modules/objectives/objective.hpp"
#include "modules/objectives/policy_loss.hpp"

namespace gyr {

namespace {

class Policy final : public Objective {
 public:
  explicit Policy(const PolicySettings& settings) : settings_(settings) {}
  const char* name() const override { return "policy"; }
  bool writes_next_token() const override { return true; }
  bool repeats() const override { return settings_.ratio == PolicyRatio::token; }
  std::shared_ptr<const Objective> without_training() const override { return next_token(); }
  bool reads_rollouts() const override { return true; }

  Labelled label(const SampleView& s) const override {
    return {{s.tokens.begin(), s.tokens.end() - 1}, next_tokens(s.tokens, s.learned), {}, s.values};
  }
  std::vector<NamedField> fields(const ModelConfig&, Index seq_length) const override {
    using namespace policy_field;
    const Index answers = most_answers(seq_length);
    std::vector<NamedField> all{ValueField<Token>{answer, -1, 0, answers, ValueReader::training_head},
                                ValueField<double>{inverse_length, 0, answers, 0, ValueReader::training_head}};
    for (const ValueName<double>& name : {old, reference, advantage, correction, weight_in_loss, kl, entropy, share})
      all.push_back(ValueField<double>{name, 0, 0, 0, ValueReader::training_head});
    return all;
  }
  std::vector<ScoringModel> scoring_models() const override {
    using enum ScoringModel::Scores;
    std::vector<ScoringModel> all;
    if (settings_.reads_reference) all.push_back({"reference", policy(settings_), policy_field::reference, log_probs});
    if (settings_.has_critic) all.push_back({"critic", value(settings_.value_clip), value_field::value, values, true});
    for (const std::string& name : settings_.reward_models) all.push_back({name, value(0), value_field::value, values});
    return all;
  }
  // The figures have no gradient. Their sums are means over the answer tokens.
  std::vector<LossSum> losses() const override { return std::vector<LossSum>(1 + policy_figures); }
  double scale(const LossSum&, Index) const override { return 1; }
  double reported(double sum, Index) const override { return sum; }
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter* table, Parameters& parameters) const override {
    Output output = output_of_tokens(c, table);
    output.multiplier /= settings_.temperature, output.soft_cap /= settings_.temperature, output.terms = {};
    return make_typed<Head, PolicyHead>(parameters.dtype(), c, output, settings_, parameters);
  }
  // The rows are scored twice in training.
  double flops(const ModelConfig& c) const override { return 2.0 * double(c.hidden_size) * double(c.vocab_size); }

 private:
  PolicySettings settings_;
};

// The settings are those of section rl, which needs the other sections.
std::shared_ptr<const Objective> read_policy(Section&, const ModelConfig&, const Objective&) { return policy({}); }

const RegisteredObjective registered_policy({"policy", "policy training from rewards of generated answers: GRPO, RLOO and others (section rl)",
                                             read_policy});

}  // namespace

std::shared_ptr<const Objective> policy(const PolicySettings& settings) { return std::make_shared<const Policy>(settings); }
Index most_answers(Index seq_length) { return (seq_length + 1) / 2; }

}  // namespace gyr
