// SPDX-License-Identifier: BSD-3-Clause
// AdamW: Adam with decoupled weight decay (Loshchilov and Hutter 2019).
#include "modules/optimizers/by_element.hpp"

namespace gyr {

Rule adamw(const AdamW& a) { return std::make_shared<RuleByElement<AdamW>>(a, std::vector<std::string_view>{"first_moment", "second_moment"}); }

Rule adamw() { return adamw({0.9, 0.95, 1e-8}); }

namespace {

Rule read_adamw(Section& s, const NamedRule&) {
  const AdamSettings a = read_adam(s);
  return adamw({a.beta1, a.beta2, a.epsilon});
}

const RegisteredRule registered_adamw({"adamw", "Adam with decoupled weight decay", read_adamw, {"beta1", "beta2", "epsilon"}});

}  // namespace
}  // namespace gyr
