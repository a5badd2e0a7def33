// SPDX-License-Identifier: BSD-3-Clause
// Lion (Chen et al. 2023): the sign of a mean of gradients, with one state per element.
#include "modules/optimizers/by_element.hpp"

namespace gyr {
namespace {

Rule read_lion(Section& optimizer, const NamedRule&) {
  Section& s = optimizer.section("lion", "settings of optimizer.name = lion");
  Lion l{};
  l.beta1 = s.get("beta1", 0.95, "share of the momentum in the mean whose sign is the update").at_least(0).below(1);
  l.beta2 = s.get("beta2", 0.98, "decay rate of the momentum").at_least(0).below(1);
  return std::make_shared<RuleByElement<Lion>>(l, std::vector<std::string_view>{"momentum"});
}

const RegisteredRule registered_lion({"lion", "sign of the momentum; needs a learning rate 3 to 10 times lower than AdamW", read_lion});

}  // namespace
}  // namespace gyr
