// SPDX-License-Identifier: BSD-3-Clause
// Models with Mamba-2 layers: Mamba2, and Nemotron-H, which also has attention without positions and MLPs. One of our
// layers is one block of llama.cpp.
#include "src/gguf/families/families.hpp"

namespace gyr::gguf::mixers {

namespace {

void check_mamba2(const ModelConfig& m, const SupportChecks& s) { check_mixer(m.mamba, s); }

void mamba2_keys(const ModelConfig& m, Keys& k) {
  put_widths(m, m.layers(), k);
  k.count("context_length", Index(1) << 20);  // the model has no maximum length, but llama.cpp needs a number
  k.count("feed_forward_length", 0), k.count("attention.head_count", 0);
  put_mixer(m.mamba, k);
}

void mamba2_adapt(const ModelConfig& m, Index, const std::string& part, PlannedTensor& t) { adapt_mixer(m.mamba, part, t); }

void check_nemotron(const ModelConfig& m, const SupportChecks& s) {
  check_mixer(m.mamba, s);
  s.demand(m.mlp.activation == Activation::relu2, "an activation other than relu2 (mlp_hidden_act)");
  s.demand(m.pattern.find('M') != std::string::npos, "a model without Mamba-2 layers");
  s.demand(m.pattern.find('E') == std::string::npos, "experts (n_routed_experts)");
}

// llama.cpp recognises the type of a layer by per-layer keys that are 0 for all other types.
void nemotron_keys(const ModelConfig& m, Keys& k) {
  put_widths(m, m.layers(), k);
  put_attention(m, k);
  put_mixer(m.mamba, k);
  k.real("attention.layer_norm_epsilon", m.rms_norm_eps);
  std::vector<std::int32_t> widths, kv_heads;
  for (const char symbol : m.pattern) {
    widths.push_back(symbol == '-' ? std::int32_t(m.mlp.intermediate_size) : 0);
    kv_heads.push_back(symbol == '*' ? std::int32_t(m.attention.num_kv_heads) : 0);
  }
  k.set_prefixed("feed_forward_length", widths);
  k.set_prefixed("attention.head_count_kv", kv_heads);
}

void nemotron_adapt(const ModelConfig& m, Index layer, const std::string& part, PlannedTensor& t) {
  adapt_mixer(m.mamba, part, t);
  if (part == "input_layernorm.weight") t.name = fmt::format("blk.{}.attn_norm.weight", layer);
  // There are no rotary positions, but llama.cpp's converter permutes the rows anyway.
  if (part.starts_with("self_attn.q_proj.") || part.starts_with("self_attn.k_proj.")) interleave_rotary_rows(m.attention.head_dim, t);
}

}  // namespace

std::vector<Architecture> architectures() {
  return {{"Mamba2ForCausalLM", "mamba2", 1, check_mamba2, mamba2_keys, mamba2_adapt},
          {"NemotronHForCausalLM", "nemotron_h", 1, check_nemotron, nemotron_keys, nemotron_adapt}};
}

}  // namespace gyr::gguf::mixers
