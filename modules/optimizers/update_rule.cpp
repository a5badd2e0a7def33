// SPDX-License-Identifier: BSD-3-Clause
#include "modules/optimizers/update_rule.hpp"

#include <algorithm>

namespace gyr {

namespace {

std::vector<RuleType>& table() {
  static std::vector<RuleType> types;
  return types;
}

}  // namespace

RegisteredRule::RegisteredRule(RuleType type) {
  auto& types = table();
  types.insert(std::find_if(types.begin(), types.end(), [&](const RuleType& t) { return t.name > type.name; }), std::move(type));
}

const std::vector<RuleType>& rule_types() { return table(); }

WeightUpdate WeightUpdate::part(Index first, Index count) const {
  const auto cut = [&](const AnyTensor& x) { return x ? rows(x, first, count) : x; };
  WeightUpdate part{cut(gradient), cut(weight), cut(master), {}, values, sums};
  for (const AnyTensor& state : states) part.states.push_back(cut(state));
  return part;
}

AdamSettings read_adam(Section& s) {
  AdamSettings a{};
  a.beta1 = s.get("beta1", 0.9, "Adam beta1: decay rate of the first moment").at_least(0).below(1);
  a.beta2 = s.get("beta2", 0.95, "Adam beta2: decay rate of the second moment").at_least(0).below(1);
  a.epsilon = s.get("epsilon", 1e-8, "Adam epsilon: added to the root of the second moment").positive();
  return a;
}

}  // namespace gyr
