// SPDX-License-Identifier: BSD-3-Clause
#include "modules/model/model_chains.hpp"

#include "modules/layers/residual.hpp"

namespace gyr {

Operator norm_operator(const ModelConfig& c, const std::string& name) {
  const Channels stream = undivided(c.hidden_size);
  Operator norm = over_rows("norm", stream, stream, {{name + ".weight", {c.hidden_size}}});
  if (c.norm == NormType::layer) norm.weights.push_back({name + ".bias", {c.hidden_size}});
  return norm;
}

ModelChain residual_chain(const ModelConfig& c, const char* what, const std::string& norm, const std::string& second_norm,
                          std::vector<OperatorChain> branches) {
  const Channels stream = undivided(c.hidden_size);
  const bool after = c.norm_placement == NormPlacement::after;
  OperatorChain inner = branches.size() == 1 ? std::move(branches.front()) : OperatorChain{sum_of("sum of branches", std::move(branches), stream)};
  if (!after && has_first_norm(c, norm)) inner.insert(inner.begin(), norm_operator(c, norm));
  if (c.norms_output()) inner.push_back(norm_operator(c, second_norm));
  OperatorChain chain{sum_of("residual sum", {{}, std::move(inner)}, stream)};
  if (after) chain.push_back(norm_operator(c, norm));
  return {what, std::move(chain)};
}

ModelChain single_chain(const ModelConfig& c, const std::string& name, std::vector<OperatorChain> branches) {
  return residual_chain(c, "layer", name + ".input_layernorm", name + ".post_layernorm", std::move(branches));
}

std::optional<ChainLayout> try_lay_out(const ModelChain& chain, LayoutRules rules, bool sequence) {
  const std::vector<TensorState> stream{sequence ? TensorState::rows : TensorState::full};
  rules.gathers_again = !chain.at_once;
  return lay_out(chain.operators, rules, chain.begin.empty() ? stream : chain.begin, chain.end.empty() ? stream : chain.end);
}

ChainLayout lay_out(const ModelChain& chain, const LayoutRules& rules, bool sequence) {
  const auto found = try_lay_out(chain, rules, sequence);
  ensure(found.has_value(), "{}: no layout leads from an allowed first state to an allowed last state", chain.name);
  return *found;
}

}  // namespace gyr
