// SPDX-License-Identifier: BSD-3-Clause
// gpt-oss: attention with sinks, every other layer through a window, and experts with biases.
#include "src/gguf/families/families.hpp"

#include "src/huggingface/stored_names.hpp"

namespace gyr::gguf {

namespace {

void check(const ModelConfig& m, const Scruples& s) {
  check_rotary(m.attention, s);
  s.demand(m.attention.bias, "attention without biases (attention_bias false)");
}

void keys(const ModelConfig& m, Keys& k) {
  put_widths(m, m.layers() / 2, k);
  k.count("feed_forward_length", m.moe.intermediate_size);
  put_attention(m, k);
  put_rotary(m.attention, k);
  put_experts(m.moe, k);
  k.count("expert_feed_forward_length", m.moe.intermediate_size);
  put_windows(m, 2, k);
}

void adapt(const ModelConfig& m, Index layer, const std::string& part, PlannedTensor& t) {
  if (part == "input_layernorm.weight" && m.pattern[std::size_t(layer)] == 'E') t.name = fmt::format("blk.{}.post_attention_norm.weight", layer / 2);
}

// Which must be there.
std::vector<PlannedTensor> head(const ModelConfig& m) {
  if (!m.tie_word_embeddings) return {};
  return {{"output.weight", {embedding_name}, {m.vocab_size, m.hidden_size}}};
}

}  // namespace

std::vector<Architecture> gpt_oss_architectures() { return {{"GptOssForCausalLM", "gpt-oss", 2, check, keys, adapt, head}}; }

}  // namespace gyr::gguf
