// SPDX-License-Identifier: BSD-3-Clause
// Models of Mamba-2 layers: Mamba2 of these alone, Nemotron-H of attention without positions and MLPs too, a layer of ours being one of theirs.
#include "src/gguf/families/families.hpp"

namespace gyr::gguf::mixers {

namespace {

void check_mamba2(const ModelConfig& m, const Scruples& s) { check_mixer(m.mamba, s); }

void mamba2_keys(const ModelConfig& m, Keys& k) {
  put_widths(m, m.layers(), k);
  k.count("context_length", Index(1) << 20);  // there is no limit
  k.count("feed_forward_length", 0), k.count("attention.head_count", 0);
  put_mixer(m.mamba, k);
}

void mamba2_adapt(const ModelConfig& m, Index, const std::string& part, PlannedTensor& t) { adapt_mixer(m.mamba, part, t); }

void check_nemotron(const ModelConfig& m, const Scruples& s) {
  check_mixer(m.mamba, s);
  s.demand(m.mlp.activation == Activation::relu2, "other activation than relu2 (mlp_hidden_act)");
  s.demand(m.pattern.find('M') != std::string::npos, "model without a layer of Mamba-2");
}

// What a layer is is told by numbers that are 0 in the others.
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
  k.own("feed_forward_length", widths);
  k.own("attention.head_count_kv", kv_heads);
}

void nemotron_adapt(const ModelConfig& m, Index layer, const std::string& part, PlannedTensor& t) {
  adapt_mixer(m.mamba, part, t);
  if (part == "input_layernorm.weight") t.name = fmt::format("blk.{}.attn_norm.weight", layer);
  // Nothing turns there; the converter orders them all the same.
  if (part.starts_with("self_attn.q_proj.") || part.starts_with("self_attn.k_proj.")) make_neighbours(m.attention.head_dim, t);
}

}  // namespace

std::vector<Architecture> architectures() {
  return {{"Mamba2ForCausalLM", "mamba2", 1, check_mamba2, mamba2_keys, mamba2_adapt},
          {"NemotronHForCausalLM", "nemotron_h", 1, check_nemotron, nemotron_keys, nemotron_adapt}};
}

}  // namespace gyr::gguf::mixers
