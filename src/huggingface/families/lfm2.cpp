// SPDX-License-Identifier: BSD-3-Clause
// LFM2. One transformers layer is a gated short convolution or attention layer with normed queries and keys, and a SwiGLU
// layer of ours.
#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/families/families.hpp"

namespace gyr::lfm2 {

namespace {

using json = ConfigReader::json;

constexpr const char *conv_kind = "conv", *size_key = "intermediate_size", *earlier_size_key = "block_ff_dim";

// layer_types lists the layers. Earlier files have the indices of the attention layers, which by default are all.
void read_pattern(ConfigReader& r) {
  const Index layers = r.integer("num_hidden_layers", 32, 1, most_layers / 2);
  const char *const key = "layer_types", *const indices_key = "full_attn_idxs";
  const json &kinds = r.value(key), &indices = r.value(indices_key);
  r.demand(kinds.is_null() || (kinds.is_array() && Index(kinds.size()) == layers), key, "is {}, which is not a list of {} layer types",
           r.text_of(kinds), layers);
  r.demand(indices.is_null() || indices.is_array(), indices_key, "is {}, which is not a list", r.text_of(indices));
  std::string mixers(std::size_t(layers), kinds.is_null() && indices.is_null() ? '*' : 'C');
  for (Index i = 0; i < layers && !kinds.is_null(); ++i) {
    r.demand(kinds[i] == full_kind || kinds[i] == conv_kind, key, "is {}; a layer type must be \"{}\" or \"{}\"", r.text_of(kinds), conv_kind,
             full_kind);
    if (kinds[i] == full_kind) mixers[i] = '*';
  }
  if (kinds.is_null() && !indices.is_null())
    for (const json& i : indices) mixers[r.integer(i, indices_key, 0, layers - 1)] = '*';
  for (const char mixer : mixers) r.config.model.pattern += {mixer, '-'};
}

// By default the size of the MLP is two thirds of the given one, times a factor, rounded up to a multiple.
Index read_inner_size(ConfigReader& r) {
  Index size = r.size(r.given(earlier_size_key) ? earlier_size_key : size_key, 12288);
  r.known(size_key);
  const Index step = r.integer("block_multiple_of", 256, 1, widest);
  const double factor = r.positive("block_ffn_dim_multiplier", 1);
  if (!r.flag("block_auto_adjust_ff_dim", true)) return size;
  size = (Index(factor * double(2 * size / 3)) + step - 1) / step * step;
  r.demand(size > 0 && size <= widest, size_key, "leads to an MLP of {} channels; it must have 1 to {}", size, widest);
  return size;
}

void read(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  r.read_widths(65536, 2560, true);
  m.tie_word_embeddings = r.flag("tie_embedding", m.tie_word_embeddings);  // name in the first published folders, which precedes
  read_pattern(r);
  m.rms_norm_eps = r.not_negative("norm_eps", 1e-5);
  r.read_heads(32, 8);
  m.attention.qk_norm = true;
  m.short_conv.kernel = r.integer("conv_L_cache", 3, 2, 16);
  m.short_conv.bias = r.flag("conv_bias", false);
  m.mlp.intermediate_size = read_inner_size(r);
  r.read_rotary(1e6, {.stretched = true});
  r.read_tokens(0, 1, 2, 128000);
  for (const char* key : {"block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_swiglu", "block_use_xavier_init",
                          "conv_dim", "conv_dim_out", "conv_use_xavier_init", "num_heads", "theta", "use_pos_enc"})
    r.known(key);  // settings of the original program, which transformers ignores
}

void write(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  write_widths(m, j);
  write_heads(m, j);
  j["num_hidden_layers"] = m.layers() / 2;
  for (Index i = 0; i < m.layers(); i += 2) j["layer_types"].push_back(m.pattern[i] == '*' ? full_kind : conv_kind);
  j["norm_eps"] = m.rms_norm_eps;
  j["conv_L_cache"] = m.short_conv.kernel, j["conv_bias"] = m.short_conv.bias;
  j[size_key] = m.mlp.intermediate_size, j["block_auto_adjust_ff_dim"] = false;
  j["max_position_embeddings"] = c.positions;
  write_rotary(m.attention, j);
}

StoredPlace place(const ModelConfig& m, const std::string& weight) {
  if (weight == "model.final_layernorm.weight") return {"model.embedding_norm.weight"};
  const auto [layer, rest] = layer_name(weight);
  if (layer < 0 || layer >= m.layers()) return {weight};
  std::string part = rest == "input_layernorm.weight" ? (layer % 2 == 0 ? "operator_norm.weight" : "ffn_norm.weight") : rest;
  for (const auto& [ours, theirs] : {std::pair<std::string_view, std::string_view>{"conv.conv1d.", "conv.conv."},
                                     {"self_attn.q_norm.", "self_attn.q_layernorm."},
                                     {"self_attn.k_norm.", "self_attn.k_layernorm."},
                                     {"self_attn.o_proj.", "self_attn.out_proj."},
                                     {"feed_forward.gate_proj.", "feed_forward.w1."},
                                     {"feed_forward.up_proj.", "feed_forward.w3."},
                                     {"feed_forward.down_proj.", "feed_forward.w2."}})
    if (part.starts_with(ours)) part.replace(0, ours.size(), theirs);
  return {fmt::format("model.layers.{}.{}", layer / 2, part)};
}

}  // namespace

std::vector<Family> families() { return {{"lfm2", "Lfm2ForCausalLM", read, write, place}}; }

}  // namespace gyr::lfm2
