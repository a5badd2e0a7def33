// SPDX-License-Identifier: BSD-3-Clause
// Gemma 2 and Gemma 3. llama.cpp stores the full norm factor 1 + w, whereas the checkpoint stores w.
#include "src/gguf/families/families.hpp"

#include <cmath>

namespace gyr::gguf::gemma {

namespace {

// block counts by which llama.cpp recognises the 27B models of Gemma 2 and 3; their attention scores have another scale
constexpr Index layers_of_27b[] = {46, 62};

void check_layers(const ModelConfig& m, const SupportChecks& s, Index layers_of_largest) {
  check_rotary(m.attention, s);
  const AttentionConfig& a = m.attention;
  const double scale = m.layers() / 2 == layers_of_largest ? double(m.hidden_size / a.num_heads) : double(a.head_dim);
  s.demand(std::abs(a.key_multiplier * std::sqrt(scale / double(a.head_dim)) - 1) < 1e-6, "this scale of attention scores (query_pre_attn_scalar)");
  s.demand(!a.bias, "attention biases (attention_bias)");
  s.demand(m.mlp.activation == Activation::gelu_tanh, "an activation other than gelu_pytorch_tanh (hidden_activation)");
}

void check_gemma2(const ModelConfig& m, const SupportChecks& s) {
  check_layers(m, s, layers_of_27b[0]);
  s.demand(m.attention.soft_cap > 0 && m.lm_head_soft_cap > 0,
           "attention scores or logits without a soft cap (attn_logit_softcapping, final_logit_softcapping)");
  s.demand(m.tie_word_embeddings, "a separate output head (tie_word_embeddings false)");
}

void check_gemma3(const ModelConfig& m, const SupportChecks& s) { check_layers(m, s, layers_of_27b[1]); }

void keys(const ModelConfig& m, Keys& k) {
  put_widths(m, m.layers() / 2, k);
  put_attention(m, k);
  put_rotary(m.attention, k);
  if (m.lm_head_soft_cap > 0) k.real("final_logit_softcapping", m.lm_head_soft_cap);
}

void gemma2_keys(const ModelConfig& m, Keys& k) {
  keys(m, k);
  k.real("attn_logit_softcapping", m.attention.soft_cap);
  put_windows(m, 2, k);
}

void gemma3_keys(const ModelConfig& m, Keys& k) {
  keys(m, k);
  if (m.window.rope_theta > 0) k.real("rope.freq_base_swa", m.window.rope_theta);
  put_windows(m, 6, k);
}

void adapt(const ModelConfig& m, Index, const std::string& part, PlannedTensor& t) {
  if (!part.ends_with("norm.weight")) return;
  t.change = [offset = float(m.norm_offset)](Index, Index rows, Index columns, float* x) {
    for (Index i = 0; i < rows * columns; ++i) x[i] += offset;
  };
}

}  // namespace

std::vector<Architecture> architectures() {
  return {{"Gemma2ForCausalLM", "gemma2", 2, check_gemma2, gemma2_keys, adapt}, {"Gemma3ForCausalLM", "gemma3", 2, check_gemma3, gemma3_keys, adapt}};
}

}  // namespace gyr::gguf::gemma
