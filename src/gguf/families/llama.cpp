// SPDX-License-Identifier: BSD-3-Clause
// Llama and its kin. What llama.cpp calls llama turns neighbouring channels of heads, where the class of transformers turns those half a head apart.
#include "src/gguf/families/families.hpp"

namespace gyr::gguf::llama {

namespace {

void check_layers(const ModelConfig& m, const Scruples& s) {
  check_rotary(m.attention, s);
  check_no_windows(m, s);
  const bool experts = m.pattern.find('E') != std::string::npos;
  s.demand(experts || m.mlp.activation == Activation::silu, "other activation than silu (hidden_act)");
  s.demand(!experts || m.pattern.find('-') == std::string::npos, "layers of experts beside layers of none");
}

void check_qwen(const ModelConfig& m, const Scruples& s) {
  s.demand(!m.attention.bias, "bias on what attention puts out (attention_bias)");
  check_layers(m, s);
}

void check_qwen3_moe(const ModelConfig& m, const Scruples& s) {
  check_qwen(m, s);
  s.demand(m.moe.routing.normalize, "experts whose weights do not add up to 1 (norm_topk_prob false)");
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
  if (part.starts_with("self_attn.q_proj.") || part.starts_with("self_attn.k_proj.")) make_neighbours(m.attention.head_dim, t);
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
