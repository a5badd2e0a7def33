// SPDX-License-Identifier: BSD-3-Clause
// Layer types with one residual connection, for patterns such as "M*-M-": Mamba-2; full, sliding-window or multi-head
// latent attention; cross-attention; MLP; mixture of experts with or without a shared expert; attention and MLP in
// parallel.
#include "modules/layers/attention.hpp"
#include "modules/layers/cross_attention.hpp"
#include "modules/layers/experts.hpp"
#include "modules/layers/latent_attention.hpp"
#include "modules/layers/mamba.hpp"
#include "modules/layers/mlp.hpp"
#include "modules/layers/single_layer.hpp"

namespace gyr {
namespace {

template <class T>
struct MambaLayer final : SingleLayer<T, Mamba> {
  MambaLayer(const ModelConfig& c, const std::string& name, Parameters& p) : SingleLayer<T, Mamba>(c, name, ".mamba", p) {}
};
template <class T>
struct AttentionLayer final : SingleLayer<T, Attention> {
  AttentionLayer(const ModelConfig& c, const std::string& name, Parameters& p) : SingleLayer<T, Attention>(c, name, ".self_attn", p) {}
};
template <class T>
struct CrossAttentionLayer final : SingleLayer<T, CrossAttention> {
  CrossAttentionLayer(const ModelConfig& c, const std::string& name, Parameters& p) : SingleLayer<T, CrossAttention>(c, name, ".cross_attn", p) {}
};
template <class T>
struct WindowLayer final : SingleLayer<T, Attention> {
  WindowLayer(const ModelConfig& c, const std::string& name, Parameters& p) : SingleLayer<T, Attention>(with_window(c), name, ".self_attn", p) {}
};
template <class T>
struct LatentLayer final : SingleLayer<T, LatentAttention> {
  LatentLayer(const ModelConfig& c, const std::string& name, Parameters& p) : SingleLayer<T, LatentAttention>(c, name, ".self_attn", p) {}
};
template <class T>
struct MlpLayer final : SingleLayer<T, Mlp> {
  MlpLayer(const ModelConfig& c, const std::string& name, Parameters& p) : SingleLayer<T, Mlp>(c, name, ".feed_forward", p) {}
};

template <class T>
struct ExpertsLayer final : SingleLayer<T, Experts> {
  ExpertsLayer(const ModelConfig& c, const std::string& name, Parameters& p) : SingleLayer<T, Experts>(c, name, ".feed_forward", p) {
    if (c.moe.shared_intermediate_size == 0) return;
    const std::string shared = name + ".feed_forward.shared_experts";
    if (c.moe.shared_gate) this->residual_.add(std::make_unique<Experts<T>>(with_gated_shared_expert(c), shared, p));
    else this->residual_.add(std::make_unique<Mlp<T>>(with_shared_expert(c), shared, p));
  }
};

template <class T>
struct ParallelLayer final : SingleLayer<T, Attention> {
  ParallelLayer(const ModelConfig& c, const std::string& name, Parameters& p) : SingleLayer<T, Attention>(c, name, ".self_attn", p) {
    this->residual_.add(std::make_unique<Mlp<T>>(c, name + ".feed_forward", p));
  }
};
LayerFlops window_flops(const ModelConfig& m, const TextLengths& n) { return attention_flops(with_window(m), n); }
LayerFlops parallel_flops(const ModelConfig& m, const TextLengths& n) { return attention_flops(m, n) + mlp_flops(m, n); }

constexpr char mamba_name[] = ".mamba", attention_name[] = ".self_attn", mlp_name[] = ".feed_forward";

ModelChains cross_chains(const ModelConfig& c, const std::string& name) {
  return {single_chain(c, name, {cross_attention_operators(c, name + ".cross_attn")}),
          {"source", source_operators(c, name + ".cross_attn"), {}, {TensorState::units, TensorState::shared}, true}};
}
ModelChains parallel_chains(const ModelConfig& c, const std::string& name) {
  return {single_chain(c, name, {attention_operators(c, name + attention_name), mlp_operators(c, name + mlp_name)})};
}
ModelChains experts_chains(const ModelConfig& c, const std::string& name) {
  std::vector<OperatorChain> branches{experts_operators(c, name + mlp_name)};
  const std::string shared = name + mlp_name + ".shared_experts";
  if (c.moe.shared_gate) branches.push_back(experts_operators(with_gated_shared_expert(c), shared));
  else if (c.moe.shared_intermediate_size > 0) branches.push_back(mlp_operators(with_shared_expert(c), shared));
  return {single_chain(c, name, std::move(branches))};
}
HeadCounts latent_heads(const ModelConfig& m) { return {m.latent.num_heads, m.latent.num_heads}; }

const Registered mamba({'M',
                        "mamba",
                        "Mamba-2",
                        make_layer<MambaLayer>,
                        mamba_flops,
                        chains_of<mamba_operators, mamba_name>,
                        {mamba_section},
                        with_mamba({.same_launches = true})});
const Registered attention(
    {'*',
     "attention",
     "self-attention",
     make_layer<AttentionLayer>,
     attention_flops,
     chains_of<attention_operators, attention_name>,
     {attention_section},
     {.attention = AttentionKind::full, .heads = attention_heads, .in_encoder = true, .same_launches = true, .ternary = true}});
const Registered cross({'X',
                        "cross",
                        "cross-attention to the encoder output",
                        make_layer<CrossAttentionLayer>,
                        cross_attention_flops,
                        cross_chains,
                        {attention_section},
                        {.attention = AttentionKind::cross}});
const Registered window({'W',
                         "window",
                         "sliding-window attention",
                         make_layer<WindowLayer>,
                         window_flops,
                         chains_of<attention_operators, attention_name>,
                         {attention_section, window_section},
                         {.attention = AttentionKind::window, .heads = attention_heads, .same_launches = true, .ternary = true}});
const Registered latent({'L',
                         "latent",
                         "multi-head latent attention (MLA)",
                         make_layer<LatentLayer>,
                         latent_attention_flops,
                         chains_of<latent_attention_operators, attention_name>,
                         {latent_section},
                         {.attention = AttentionKind::latent, .heads = latent_heads, .same_launches = true}});
const Registered mlp({'-',
                      "mlp",
                      "MLP",
                      make_layer<MlpLayer>,
                      mlp_flops,
                      chains_of<mlp_operators, mlp_name>,
                      {mlp_section},
                      {.in_encoder = true, .same_launches = true, .ternary = true}});
const Registered parallel({'B',
                           "parallel",
                           "attention and MLP in parallel",
                           make_layer<ParallelLayer>,
                           parallel_flops,
                           parallel_chains,
                           {attention_section, mlp_section},
                           {.attention = AttentionKind::full, .heads = attention_heads, .in_encoder = true, .same_launches = true, .ternary = true}});
const Registered experts({'E',
                          "experts",
                          "mixture of experts (MoE)",
                          make_layer<ExpertsLayer>,
                          experts_flops,
                          experts_chains,
                          {moe_section},
                          {.experts = true, .same_launches = true}});

}  // namespace
}  // namespace gyr
