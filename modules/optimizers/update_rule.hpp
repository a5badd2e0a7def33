// SPDX-License-Identifier: BSD-3-Clause
// Update rules of weights (optimizers). The file of a rule defines one and registers it, as the only place that knows
// it: const RegisteredRule here({...}). Parameters, checkpoints, comparisons of replicas, memory, traffic and plan ask
// the rule of a weight what it keeps.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops/any_tensor.hpp"
#include "kernels/ops/updates/weight_update.hpp"
#include "modules/settings/settings.hpp"
#include "modules/weights/parameter.hpp"

namespace gyr {

// Operands of an update: the elements of a weight that this rank updates, and the tensors that are stored with them.
struct WeightUpdate {
  AnyTensor gradient, weight, master;  // master: empty if the weight is its own master weight
  std::vector<AnyTensor> states;       // in the order of UpdateRule::states
  AnyTensor values;                    // (8) values of the step, in device memory
  Tensor1<double> sums;                // (2) sums over the whole weight, for rules that need them

  // The same for a part of the elements.
  WeightUpdate part(Index first, Index count) const;
  // Weight in the accumulator's precision.
  const AnyTensor& exact() const { return master ? master : weight; }
};

class UpdateRule;
// Rule that updates a weight, and a factor on its learning rate.
struct RuleOfWeight {
  const UpdateRule* rule;
  double lr_factor;
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // Rule of a weight to which a deck assigns this one: another one if this one cannot update it.
  virtual RuleOfWeight of(const Weight&) const { return {this, 1}; }
  virtual std::vector<const UpdateRule*> rules() const { return {this}; }  // that of() may return

  virtual std::string_view name() const = 0;
  // Names of the states that the rule keeps: tensors in the weight's shape and the accumulator's precision, which start
  // at zero. A checkpoint has them as /optimizer/NAME/WEIGHT. The names are literals.
  virtual std::vector<std::string_view> states() const = 0;
  // Values per element and step that the update reads or writes in the accumulator's precision, without the rounded copy
  // of a master weight: for plans.
  virtual double values_moved() const = 0;
  // True if the update needs two sums over all elements of the weight, wherever they are: add_sums then runs first.
  virtual bool needs_sums(const Weight&) const { return false; }

  virtual UpdateValues values(const StepOfWeight&) const = 0;
  // First pass of a rule that needs sums. Adds this rank's part to `sums` (2), or nothing if that is empty: another rank
  // counts these elements.
  virtual void add_sums(Device&, const WeightUpdate&, Tensor1<double>) const {}
  virtual void update(Device&, const WeightUpdate&) const = 0;
};

using Rule = std::shared_ptr<const UpdateRule>;

using NamedRule = std::function<Rule(const std::string& name)>;

// Entry of the table of rules.
struct RuleType {
  std::string name;
  const char* help;
  // Declares and reads the settings: optimizer.NAME.*, and the shared ones. A rule may use others, with their settings.
  Rule (*read)(Section& optimizer, const NamedRule& other);
  std::vector<std::string> shared_keys{};  // keys of `optimizer` that other rules read too
};
const std::vector<RuleType>& rule_types();  // all registered rules, sorted by name

struct RegisteredRule {
  explicit RegisteredRule(RuleType type);
};

Rule adamw(const AdamW&);
Rule adamw();  // with the settings that a deck has by default

// Settings that AdamW and LAMB share.
struct AdamSettings {
  double beta1, beta2, epsilon;
};
AdamSettings read_adam(Section& optimizer);

}  // namespace gyr
