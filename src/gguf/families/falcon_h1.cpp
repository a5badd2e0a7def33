// SPDX-License-Identifier: BSD-3-Clause
// Falcon-H1: its multipliers are not known there, and go into the weights that they follow.
#include "src/gguf/families/families.hpp"

#include <algorithm>

#include "src/huggingface/stored_names.hpp"

namespace gyr::gguf::falcon_h1 {

namespace {

void check(const ModelConfig& m, const Scruples& s) {
  check_rotary(m.attention, s);
  check_mixer(m.mamba, s);
  s.demand(!m.attention.bias, "biases of attention in a hybrid");
}

void keys(const ModelConfig& m, Keys& k) {
  put_widths(m, m.layers(), k);
  put_attention(m, k);
  put_mixer(m.mamba, k);
  put_rotary(m.attention, k);
}

// Of a row of in_proj, which holds z, x, B, C and dt.
std::size_t section_of(const MambaConfig& c, Index row) {
  const Index ends[] = {c.inner(), 2 * c.inner(), 2 * c.inner() + c.num_groups * c.state_size, 2 * c.inner() + 2 * c.num_groups * c.state_size};
  return std::size_t(std::upper_bound(std::begin(ends), std::end(ends), row) - std::begin(ends));
}

// What a weight is multiplied by, one number after the other; a row of in_proj also by its section's.
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
  if (part == "pre_ff_layernorm.weight") t.name = fmt::format("blk.{}.ffn_norm", layer);  // read by this name alone
  multiply(m, part, t);
}

// A head that is the embedding has another multiplier.
std::vector<PlannedTensor> head_of_its_own(const ModelConfig& m) {
  std::vector<PlannedTensor> extra = rotary_factors(m);
  if (!m.tie_word_embeddings || m.lm_head_multiplier == m.embedding_multiplier) return extra;
  PlannedTensor head{"output.weight", {embedding_name}, {m.vocab_size, m.hidden_size}};
  multiply(m, head_name, head);
  extra.push_back(std::move(head));
  return extra;
}

}  // namespace

std::vector<Architecture> architectures() { return {{"FalconH1ForCausalLM", "falcon-h1", 1, check, keys, adapt, head_of_its_own}}; }

}  // namespace gyr::gguf::falcon_h1
