// SPDX-License-Identifier: BSD-3-Clause
#include "modules/model/model_chains.hpp"

#include "modules/layers/attention.hpp"
#include "modules/layers/cross_attention.hpp"
#include "modules/layers/experts.hpp"
#include "modules/layers/latent_attention.hpp"
#include "modules/layers/mamba.hpp"
#include "modules/layers/mlp.hpp"
#include "modules/layers/residual.hpp"

namespace gyr {

Operator norm_operator(const ModelConfig& c, const std::string& name) {
  const Channels stream = undivided(c.hidden_size);
  Operator norm = over_rows("norm", stream, stream, {{name + ".weight", {c.hidden_size}}});
  if (c.norm == NormType::layer) norm.weights.push_back({name + ".bias", {c.hidden_size}});
  return norm;
}

OperatorChain mlp_operators(const ModelConfig& m, const std::string& name) {
  const MlpConfig& c = m.mlp;
  const Run inner = inner_channels(c);
  const Channels stream = undivided(m.hidden_size), read = by_units(c.gated ? std::vector{inner, inner} : std::vector{inner});
  const std::vector<std::string> up = c.gated ? std::vector{name + ".gate_proj", name + ".up_proj"} : std::vector{name + ".up_proj"};
  return {gemm_operator(c.gated ? "gate and up" : "up", stream, read, up, c.bias), over_units("activation", read, by_units({inner})),
          gemm_operator("down", by_units({inner}), stream, {name + ".down_proj"}, c.bias)};
}

namespace {

// Chain of a residual block: the branches, the norms before and after them, and the residual sum.
ModelChain residual(const ModelConfig& c, const char* what, const std::string& norm, const std::string& second_norm,
                    std::vector<OperatorChain> branches) {
  const Channels stream = undivided(c.hidden_size);
  const bool after = c.norm_placement == NormPlacement::after;
  OperatorChain inner = branches.size() == 1 ? std::move(branches.front()) : OperatorChain{sum_of("sum of branches", std::move(branches), stream)};
  if (!after && !(c.embed_norm && norm == first_norm_name)) inner.insert(inner.begin(), norm_operator(c, norm));
  if (c.norm_placement == NormPlacement::both) inner.push_back(norm_operator(c, second_norm));
  OperatorChain chain{sum_of("residual sum", {{}, std::move(inner)}, stream)};
  if (after) chain.push_back(norm_operator(c, norm));
  return {what, std::move(chain)};
}
ModelChain single(const ModelConfig& c, const std::string& name, std::vector<OperatorChain> branches) {
  return residual(c, "layer", name + ".input_layernorm", name + ".post_layernorm", std::move(branches));
}

std::vector<OperatorChain> with_shared(const ModelConfig& c, const std::string& name) {
  std::vector<OperatorChain> branches{experts_operators(c, name)};
  if (c.moe.shared_intermediate_size > 0) branches.push_back(mlp_operators(with_shared_expert(c), name + ".shared_experts"));
  return branches;
}

}  // namespace

ModelChains layer_chains(const ModelConfig& c, char symbol, const std::string& name) {
  const std::string attention = name + ".self_attn", mlp = name + ".feed_forward";
  switch (symbol) {
    case 'P':
      return {residual(c, "mixers", name + ".input_layernorm", name + ".post_layernorm",
                       {mamba_operators(c, name + ".mamba"), attention_operators(c, attention)}),
              residual(c, "feed forward", name + ".pre_ff_layernorm", name + ".post_ff_layernorm", {mlp_operators(c, mlp)})};
    case 'M': return {single(c, name, {mamba_operators(c, name + ".mamba")})};
    case '*':
    case 'W': return {single(c, name, {attention_operators(c, attention)})};
    case 'L': return {single(c, name, {latent_attention_operators(c, attention)})};
    case '-': return {single(c, name, {mlp_operators(c, mlp)})};
    case 'B': return {single(c, name, {attention_operators(c, attention), mlp_operators(c, mlp)})};
    case 'E': return {single(c, name, with_shared(c, mlp))};
    case 'X':
      return {single(c, name, {cross_attention_operators(c, name + ".cross_attn")}),
              {"source", source_operators(c, name + ".cross_attn"), {}, {TensorState::units, TensorState::shared}, true}};
    case encoder_end: {
      ModelChains chains = relative_bias_chains(c, name + ".relative_bias");
      chains.push_back({"source", {norm_operator(c, name + ".norm")}, {}, {}, true});
      return chains;
    }
  }
  ensure(false, "layer type '{}' has no operator chain", symbol);
  return {};
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
