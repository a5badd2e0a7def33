// SPDX-License-Identifier: BSD-3-Clause
// Llama and similar models. llama.cpp's architecture `llama` rotates adjacent channels of a head, whereas transformers
// rotates channels half a head apart.
#include "src/gguf/families/families.hpp"

namespace gyr::gguf::llama {

namespace {

void check_layers(const ModelConfig& m, const SupportChecks& s) {
  check_rotary(m.attention, s);
  check_no_windows(m, s);
  const bool experts = m.pattern.find('E') != std::string::npos;
  s.demand(experts || m.mlp.activation == Activation::silu, "an activation other than silu (hidden_act)");
  s.demand(!experts || m.pattern.find('-') == std::string::npos, "a mixture of MoE and dense layers");
}

void check_qwen(const ModelConfig& m, const SupportChecks& s) {
  s.demand(!m.attention.bias, "a bias on the attention output (attention_bias)");
  check_layers(m, s);
}

void check_qwen3_moe(const ModelConfig& m, const SupportChecks& s) {
  check_qwen(m, s);
  s.demand(m.moe.routing.normalize, "expert weights that do not sum to 1 (norm_topk_prob false)");
}

void keys(const ModelConfig& m, Keys& k) {
  put_widths(m, m.layers() / 2, k);
  put_attention(m, k);
  put_rotary(m.attention, k);
}

void llama_keys(const ModelConfig& m, Keys& k) {
  keys(m, k);
  k.count("rope.dimension_count", m.attention.head_dim);
}

void mixtral_keys(const ModelConfig& m, Keys& k) {
  llama_keys(m, k);
  k.count("feed_forward_length", m.moe.intermediate_size);
  put_experts(m.moe, k);
}

void qwen3_moe_keys(const ModelConfig& m, Keys& k) {
  keys(m, k);
  put_experts(m.moe, k);
  k.count("expert_feed_forward_length", m.moe.intermediate_size);
}

void adapt(const ModelConfig& m, Index, const std::string& part, PlannedTensor& t) {
  if (part.starts_with("self_attn.q_proj.") || part.starts_with("self_attn.k_proj.")) interleave_rotary_rows(m.attention.head_dim, t);
}

}  // namespace

std::vector<Architecture> architectures() {
  return {{"LlamaForCausalLM", "llama", 2, check_layers, llama_keys, adapt, rotary_factors},
          {"MistralForCausalLM", "llama", 2, check_layers, llama_keys, adapt, rotary_factors},
          {"MixtralForCausalLM", "llama", 2, check_layers, mixtral_keys, adapt, rotary_factors},
          {"Qwen2ForCausalLM", "qwen2", 2, check_qwen, keys},
          {"Qwen3ForCausalLM", "qwen3", 2, check_qwen, keys},
          {"Qwen3MoeForCausalLM", "qwen3moe", 2, check_qwen3_moe, qwen3_moe_keys}};
}

}  // namespace gyr::gguf::llama
