// SPDX-License-Identifier: BSD-3-Clause
// Phi-3 and Phi-4 (Phi3ForCausalLM). One transformers layer is an attention layer, with a sliding window or full, and a
// SwiGLU layer of ours. Queries, keys and values are stored in one tensor, and gate and up, too. RoPE may rotate a part of
// each head. The RoPE scaling of long-context variants (longrope) is not supported.
#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/families/families.hpp"
#include "src/huggingface/window_keys.hpp"

namespace gyr::phi3 {

namespace {

void read(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  r.read_widths(32064, 3072, false);
  const Index layers = r.integer("num_hidden_layers", 32, 1, most_layers / 2);
  for (Index i = 0; i < layers; ++i) m.pattern += "*-";
  m.rms_norm_eps = r.not_negative("rms_norm_eps", 1e-5);
  r.read_heads(32, 0);
  m.mlp.intermediate_size = r.size("intermediate_size", 8192);
  m.mlp.activation = r.activation("hidden_act", Activation::silu);
  m.dropout.embedding = r.dropout("embd_pdrop", 0), m.dropout.residual = r.dropout("resid_pdrop", 0);
  r.read_rotary(1e4, {.partial = true});
  if (r.given("sliding_window") && read_window(r)) use_sliding_windows(m);
  r.read_tokens(32000, 1, 32000, 4096);
  r.known("original_max_position_embeddings");  // has an effect with longrope only
}

void write(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  write_widths(m, j);
  write_heads(m, j);
  j["num_hidden_layers"] = m.layers() / 2;
  j["intermediate_size"] = m.mlp.intermediate_size;
  j["hidden_act"] = ConfigReader::name_of(m.mlp.activation);
  j["rms_norm_eps"] = m.rms_norm_eps;
  j["embd_pdrop"] = m.dropout.embedding, j["resid_pdrop"] = m.dropout.residual;
  write_window(m, j);
  j["max_position_embeddings"] = c.positions;
  write_rotary(m.attention, j);
  j["partial_rotary_factor"] = m.attention.rotary_fraction;
}

StoredPlace place(const ModelConfig& m, const std::string& weight) {
  StoredPlace stored = llama::layer_pair_place(m, weight);
  const Index q = m.attention.num_heads * m.attention.head_dim, k = m.attention.num_kv_heads * m.attention.head_dim, inner = m.mlp.intermediate_size;
  struct Fused {
    std::string_view part, tensor;
    Span rows;
    Index stack;
  };
  const Fused all[] = {{".self_attn.q_proj.", ".self_attn.qkv_proj.", {0, q}, q + 2 * k},
                       {".self_attn.k_proj.", ".self_attn.qkv_proj.", {q, q + k}, q + 2 * k},
                       {".self_attn.v_proj.", ".self_attn.qkv_proj.", {q + k, q + 2 * k}, q + 2 * k},
                       {".mlp.gate_proj.", ".mlp.gate_up_proj.", {0, inner}, 2 * inner},
                       {".mlp.up_proj.", ".mlp.gate_up_proj.", {inner, 2 * inner}, 2 * inner}};
  for (const Fused& fused : all)
    if (const auto at = stored.name.find(fused.part); at != std::string::npos)
      stored.name.replace(at, fused.part.size(), fused.tensor), stored.rows = fused.rows, stored.stack = fused.stack;
  return stored;
}

}  // namespace

std::vector<Family> families() { return {{"phi3", "Phi3ForCausalLM", read, write, place}}; }

}  // namespace gyr::phi3
