// SPDX-License-Identifier: BSD-3-Clause
// Falcon-H1. llama.cpp does not know its multipliers, so they are multiplied into the weights.
#include "src/gguf/families/families.hpp"

#include <algorithm>

#include "src/huggingface/stored_names.hpp"

namespace gyr::gguf::falcon_h1 {

namespace {

void check(const ModelConfig& m, const SupportChecks& s) {
  check_rotary(m.attention, s);
  check_mixer(m.mamba, s);
  s.demand(!m.attention.bias, "attention biases in a hybrid model");
}

void keys(const ModelConfig& m, Keys& k) {
  put_widths(m, m.layers(), k);
  put_attention(m, k);
  put_mixer(m.mamba, k);
  put_rotary(m.attention, k);
}

// Section of a row of in_proj: 0 to 4 for z, x, B, C and dt.
std::size_t section_of(const MambaConfig& c, Index row) {
  const Index ends[] = {c.inner(), 2 * c.inner(), 2 * c.inner() + c.num_groups * c.state_size, 2 * c.inner() + 2 * c.num_groups * c.state_size};
  return std::size_t(std::upper_bound(std::begin(ends), std::end(ends), row) - std::begin(ends));
}

// Multipliers of a weight, applied one after the other. Rows of in_proj are also multiplied by the multiplier of their
// section.
std::vector<double> multipliers_of(const ModelConfig& m, const std::string& part) {
  const AttentionConfig& a = m.attention;
  const auto is = [&](const char* name) { return part.starts_with(name); };
  if (is("feed_forward.down_proj")) return {m.mlp.down_multiplier};
  if (is("feed_forward.gate_proj")) return {m.mlp.gate_multiplier};
  if (is("self_attn.k_proj")) return {a.key_multiplier, a.in_multiplier};
  if (is("self_attn.q_proj") || is("self_attn.v_proj")) return {a.in_multiplier};
  if (is("self_attn.o_proj")) return {a.out_multiplier};
  if (is("mamba.out_proj")) return {m.mamba.out_multiplier};
  if (is("mamba.in_proj")) return {m.mamba.in_multiplier};
  if (part == head_name) return {m.lm_head_multiplier};
  if (part == embedding_name) return {m.embedding_multiplier};
  return {};
}

void multiply(const ModelConfig& m, const std::string& part, PlannedTensor& t) {
  const std::vector<double> factors = multipliers_of(m, part);
  if (factors.empty()) return;
  const bool sections = part.starts_with("mamba.in_proj");
  t.change = [factors, sections, c = m.mamba](Index first, Index rows, Index columns, float* x) {
    for (const double factor : factors) scaled([factor](Index) { return float(factor); })(first, rows, columns, x);
    if (sections) scaled([&](Index row) { return float(c.multipliers[section_of(c, row)]); })(first, rows, columns, x);
  };
}

void adapt(const ModelConfig& m, Index layer, const std::string& part, PlannedTensor& t) {
  adapt_mixer(m.mamba, part, t);
  if (part == "pre_ff_layernorm.weight") t.name = fmt::format("blk.{}.ffn_norm", layer);  // llama.cpp reads this tensor without the ending ".weight"
  multiply(m, part, t);
}

// For tied embeddings, the head is written as a separate tensor if its multiplier differs from that of the embedding.
std::vector<PlannedTensor> separate_head(const ModelConfig& m) {
  std::vector<PlannedTensor> extra = rotary_factors(m);
  if (!m.tie_word_embeddings || m.lm_head_multiplier == m.embedding_multiplier) return extra;
  PlannedTensor head{"output.weight", {embedding_name}, {m.vocab_size, m.hidden_size}};
  multiply(m, head_name, head);
  extra.push_back(std::move(head));
  return extra;
}

}  // namespace

std::vector<Architecture> architectures() { return {{"FalconH1ForCausalLM", "falcon-h1", 1, check, keys, adapt, separate_head}}; }

}  // namespace gyr::gguf::falcon_h1
