// SPDX-License-Identifier: BSD-3-Clause
// Falcon-H1. Reads config.json of transformers 4.5x, 5.0 and 5.16, and writes one that all of them read. Tensor names
// equal our weight names.
#include <algorithm>
#include <cmath>

#include "src/huggingface/families/families.hpp"
#include "src/huggingface/mixer_keys.hpp"

namespace gyr::falcon_h1 {

namespace {

using json = ConfigReader::json;

void read_shape(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  r.read_widths(128000, 4096, false);
  m.pattern.assign(std::size_t(r.integer("num_hidden_layers", 32, 1, most_layers)), 'P');
  for (const char* key : {"layer_types", "layers_block_type"}) {
    const json& kinds = r.value(key);
    const bool hybrid = kinds.is_null() || (kinds.is_array() && Index(kinds.size()) == m.layers() &&
                                            std::all_of(kinds.begin(), kinds.end(), [](const json& kind) { return kind == "hybrid"; }));
    r.demand(hybrid, key, "is {}; every layer must be \"hybrid\"", r.text_of(kinds));
  }
  m.rms_norm_eps = r.not_negative("rms_norm_eps", 1e-5);
  m.embedding_multiplier = r.finite("embedding_multiplier", 1);
  m.lm_head_multiplier = r.finite("lm_head_multiplier", 1);
}

void read_attention(ConfigReader& r) {
  AttentionConfig& a = r.config.model.attention;
  r.read_heads(32, 8);
  a.bias = r.flag("attention_bias", false);
  a.in_multiplier = r.finite("attention_in_multiplier", 1);
  a.key_multiplier = r.finite("key_multiplier", 1);
  a.out_multiplier = r.finite("attention_out_multiplier", 1);
}

void read_time_step(ConfigReader& r) {
  MambaConfig& m = r.config.model.mamba;
  const std::string key = "time_step_limit";
  r.read_time_step_limit(key);
  if (m.dt_low > 0 || std::isfinite(m.dt_high))
    r.note("{} is {} and is applied; transformers before 5.0 ignores it and uses [0, inf]", key, r.text_of(r.value(key)));
  m.dt_init_low = r.positive("time_step_min", 1e-3);
  m.dt_init_high = r.positive("time_step_max", 0.1);
}

void read_mamba(ConfigReader& r) {
  MambaConfig& m = r.config.model.mamba;
  const Index expanded = r.integer("mamba_expand", 2, 1, widest) * r.config.model.hidden_size;
  const bool by_expansion = r.given("mamba_d_ssm") && r.value("mamba_d_ssm").is_null();
  const Index inner = by_expansion ? expanded : r.size("mamba_d_ssm", 1024);
  r.demand(inner <= widest, "mamba_expand", "times hidden_size is {}; the maximum is {}", inner, widest);
  m.num_heads = r.size("mamba_n_heads", 128);
  r.demand(inner % m.num_heads == 0, "mamba_n_heads", "is {}, which does not divide the {} SSM channels (mamba_d_ssm)", m.num_heads, inner);
  m.head_dim = inner / m.num_heads;
  if (r.given("mamba_d_head") && r.value("mamba_d_head") != "auto") {
    const Index width = r.size("mamba_d_head", 0);
    r.demand(width == m.head_dim, "mamba_d_head", "is {}; multiplied by mamba_n_heads {} it must equal mamba_d_ssm {}", width, m.num_heads, inner);
  }
  m.num_groups = r.size("mamba_n_groups", 1);
  m.state_size = r.size("mamba_d_state", 256);
  r.demand(m.num_groups * m.state_size <= widest, "mamba_n_groups", "times mamba_d_state is {}; the maximum is {}", m.num_groups * m.state_size,
           widest);
  m.conv_kernel = r.integer("mamba_d_conv", 4, 2, 16);
  m.chunk_size = r.size("mamba_chunk_size", 256);
  m.conv_bias = r.flag("mamba_conv_bias", true);
  m.in_bias = r.flag("mamba_proj_bias", false);
  m.out_bias = r.flag("projectors_bias", false);
  const bool norm_first = r.config.norm_before_gate = r.flag("mamba_norm_before_gate", true);
  m.norm = !r.flag("mamba_rms_norm", false) ? SsmNorm::none : norm_first ? SsmNorm::norm_first : SsmNorm::gate_first;
  m.in_multiplier = r.finite("ssm_in_multiplier", 1);
  m.out_multiplier = r.finite("ssm_out_multiplier", 1);
  const std::vector<double> five = r.multipliers("ssm_multipliers", m.multipliers.size());
  std::copy(five.begin(), five.end(), m.multipliers.begin());
  read_time_step(r);
}

void read_mlp(ConfigReader& r) {
  MlpConfig& m = r.config.model.mlp;
  m.intermediate_size = r.size("intermediate_size", 14336);
  m.bias = r.flag("mlp_bias", false);
  const std::vector<double> two = r.multipliers("mlp_multipliers", 2);
  m.gate_multiplier = two[0], m.down_multiplier = two[1];
  r.silu("hidden_act");
}

void read(ConfigReader& r) {
  read_shape(r);
  read_attention(r);
  read_mamba(r);
  read_mlp(r);
  r.read_rotary({}, {});
  r.read_tokens(0, 1, 2, 8192);
}

void write_shape(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  write_widths(m, j);
  write_heads(m, j);
  j["intermediate_size"] = m.mlp.intermediate_size;
  j["num_hidden_layers"] = m.layers();
  j["hidden_act"] = "silu";
  j["rms_norm_eps"] = m.rms_norm_eps;
  j["max_position_embeddings"] = c.positions;
  write_rotary(m.attention, j);
  j["attention_bias"] = m.attention.bias;
  j["mlp_bias"] = m.mlp.bias;
  j["projectors_bias"] = m.mamba.out_bias;
}

void write_mamba(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  j["mamba_proj_bias"] = m.mamba.in_bias;
  j["mamba_conv_bias"] = m.mamba.conv_bias;
  j["mamba_d_ssm"] = m.mamba.inner();
  j["mamba_expand"] = 2;
  j["mamba_n_heads"] = m.mamba.num_heads;
  j["mamba_d_head"] = m.mamba.head_dim;
  j["mamba_n_groups"] = m.mamba.num_groups;
  j["mamba_d_state"] = m.mamba.state_size;
  j["mamba_d_conv"] = m.mamba.conv_kernel;
  j["mamba_chunk_size"] = m.mamba.chunk_size;
  j["mamba_rms_norm"] = m.mamba.norm != SsmNorm::none;
  j["mamba_norm_before_gate"] = m.mamba.norm == SsmNorm::none ? c.norm_before_gate : m.mamba.norm == SsmNorm::norm_first;
  j["time_step_min"] = m.mamba.dt_init_low;
  j["time_step_max"] = m.mamba.dt_init_high;
  write_time_step_limit(m.mamba, j);
}

void write_multipliers(const ModelConfig& m, nlohmann::ordered_json& j) {
  j["embedding_multiplier"] = m.embedding_multiplier;
  j["lm_head_multiplier"] = m.lm_head_multiplier;
  j["attention_in_multiplier"] = m.attention.in_multiplier;
  j["key_multiplier"] = m.attention.key_multiplier;
  j["attention_out_multiplier"] = m.attention.out_multiplier;
  j["ssm_in_multiplier"] = m.mamba.in_multiplier;
  j["ssm_multipliers"] = m.mamba.multipliers;
  j["ssm_out_multiplier"] = m.mamba.out_multiplier;
  j["mlp_multipliers"] = {m.mlp.gate_multiplier, m.mlp.down_multiplier};
}

void write(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  write_shape(c, j);
  write_mamba(c, j);
  write_multipliers(c.model, j);
  j["num_logits_to_keep"] = 1;
}

StoredPlace place(const ModelConfig&, const std::string& weight) { return {weight}; }

}  // namespace

std::vector<Family> families() { return {{"falcon_h1", "FalconH1ForCausalLM", read, write, place}}; }

}  // namespace gyr::falcon_h1
