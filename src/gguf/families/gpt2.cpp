// SPDX-License-Identifier: BSD-3-Clause
// GPT-2. llama.cpp stores queries, keys and values as one matrix. No matrix is transposed.
#include "src/gguf/families/families.hpp"

namespace gyr::gguf::gpt2 {

namespace {

void check(const ModelConfig& m, const SupportChecks& s) {
  s.demand(m.mlp.activation == Activation::gelu_tanh, "an activation other than gelu_new (activation_function)");
}

void keys(const ModelConfig& m, Keys& k) {
  put_widths(m, m.layers() / 2, k);
  k.count("context_length", m.positions);
  k.count("attention.head_count", m.attention.num_heads);
}

void adapt(const ModelConfig&, Index layer, const std::string& part, PlannedTensor& t) {
  for (const char* name : {"self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj."})
    if (part.starts_with(name)) t.name = fmt::format("blk.{}.attn_qkv{}", layer / 2, part.substr(part.rfind('.')));
}

}  // namespace

std::vector<Architecture> architectures() { return {{"GPT2LMHeadModel", "gpt2", 2, check, keys, adapt}}; }

}  // namespace gyr::gguf::gpt2
