// SPDX-License-Identifier: BSD-3-Clause
#include "modules/model_chains.hpp"

#include <map>

#include "kernels/error.hpp"

namespace gyr {

namespace {
// Filled while the program loads, constant afterwards.
std::map<char, RegisteredChains::Make>& table() {
  static std::map<char, RegisteredChains::Make> chains;
  return chains;
}
}  // namespace

RegisteredChains::RegisteredChains(char symbol, Make make) { table().emplace(symbol, make); }

ModelChains layer_chains(const ModelConfig& m, char symbol, const std::string& name) {
  const auto found = table().find(symbol);
  ensure(found != table().end(), "layer type '{}' has not said what its operators are", symbol);
  return found->second(m, name);
}

std::optional<ChainLayout> try_lay_out(const ModelChain& chain, LayoutRules rules, bool sequence) {
  const std::vector<TensorState> stream{sequence ? TensorState::rows : TensorState::whole};
  rules.gathers_again = !chain.at_once;
  return lay_out(chain.operators, rules, chain.begin.empty() ? stream : chain.begin, chain.end.empty() ? stream : chain.end);
}

ChainLayout lay_out(const ModelChain& chain, const LayoutRules& rules, bool sequence) {
  const auto found = try_lay_out(chain, rules, sequence);
  ensure(found.has_value(), "{}: its operators lead from no state that it begins in to one that it ends in", chain.name);
  return *found;
}

}  // namespace gyr
