// SPDX-License-Identifier: BSD-3-Clause
// Stochastic gradient descent with momentum and decoupled weight decay.
#include "modules/optimizers/by_element.hpp"

namespace gyr {
namespace {

Rule read_sgd(Section& optimizer, const NamedRule&) {
  Section& s = optimizer.section("sgd", "settings of optimizer.name = sgd");
  Sgd sgd{};
  sgd.momentum = s.get("momentum", 0.9, "decay rate of the momentum").at_least(0).below(1);
  sgd.nesterov = s.get("nesterov", false, "Nesterov's momentum: the update looks one step ahead");
  return std::make_shared<RuleByElement<Sgd>>(sgd, std::vector<std::string_view>{"momentum_buffer"});
}

const RegisteredRule registered_sgd({"sgd", "gradient descent with momentum", read_sgd});

}  // namespace
}  // namespace gyr
