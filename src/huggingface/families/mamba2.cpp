// SPDX-License-Identifier: BSD-3-Clause
// Mamba2: every layer is a norm and a Mamba-2 mixer, without positions. transformers' gated norm is over all channels at once, which groups of
// several are not.
#include <array>
#include <cmath>

#include "src/huggingface/config_reader.hpp"
#include "src/huggingface/families/families.hpp"

namespace gyr {

namespace {

void read_mixer(ConfigReader& r) {
  MambaConfig& m = r.config.model.mamba;
  m.num_heads = r.size("num_heads", 128);
  m.head_dim = r.size("head_dim", 64);
  const Index expanded = r.integer("expand", 2, 1, widest) * r.config.model.hidden_size;
  r.demand(m.num_heads <= widest / m.head_dim && m.inner() == expanded, "expand", "times hidden_size is {}, and num_heads times head_dim {} times {}",
           expanded, m.num_heads, m.head_dim);
  m.num_groups = r.size("n_groups", 8);
  m.state_size = r.size("state_size", 128);
  r.demand(m.num_groups * m.state_size <= widest, "n_groups", "times state_size is {}; {} is the most", m.num_groups * m.state_size, widest);
  m.conv_kernel = r.integer("conv_kernel", 4, 2, 16);
  m.chunk_size = r.size("chunk_size", 256);
  m.conv_bias = r.flag("use_conv_bias", true);
  m.in_bias = m.out_bias = r.flag("use_bias", false);
  r.demand(r.flag("rms_norm", true), "rms_norm", "is false; transformers norms the gated output whatever it says");
  m.norm = SsmNorm::gate_first;
  r.demand(m.num_groups == 1, "n_groups", "is {}; transformers norms all groups together, which is supported for one group only", m.num_groups);
  r.silu("hidden_act");
  r.read_time_step_limit("time_step_limit");
  m.dt_init_low = r.positive("time_step_min", 1e-3);
  m.dt_init_high = r.positive("time_step_max", 0.1);
}

void read(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  r.read_widths(32768, 4096, false);
  m.pattern.assign(std::size_t(r.integer("num_hidden_layers", 64, 1, most_layers)), 'M');
  m.rms_norm_eps = r.not_negative("layer_norm_epsilon", 1e-5);
  read_mixer(r);
  for (const char* key : {"rescale_prenorm_residual", "residual_in_fp32", "time_step_rank"}) r.known(key);
  r.read_tokens(1, 0, 2, r.config.positions);
}

void write(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  write_widths(m, j);
  j["num_hidden_layers"] = m.layers();
  j["num_heads"] = m.mamba.num_heads;
  j["head_dim"] = m.mamba.head_dim;
  j["expand"] = m.mamba.inner() / m.hidden_size;
  j["n_groups"] = m.mamba.num_groups;
  j["state_size"] = m.mamba.state_size;
  j["conv_kernel"] = m.mamba.conv_kernel;
  j["chunk_size"] = m.mamba.chunk_size;
  j["use_conv_bias"] = m.mamba.conv_bias;
  j["use_bias"] = m.mamba.in_bias;
  j["rms_norm"] = true;
  j["hidden_act"] = "silu";
  j["layer_norm_epsilon"] = m.rms_norm_eps;
  j["residual_in_fp32"] = true;
  j["time_step_min"] = m.mamba.dt_init_low;
  j["time_step_max"] = m.mamba.dt_init_high;
  if (m.mamba.dt_low != 0 || std::isfinite(m.mamba.dt_high)) j["time_step_limit"] = {spelled(m.mamba.dt_low), spelled(m.mamba.dt_high)};
}

std::string stored_name(const ModelConfig&, const std::string& weight) {
  if (weight == "model.embed_tokens.weight") return "backbone.embeddings.weight";
  if (weight == "model.final_layernorm.weight") return "backbone.norm_f.weight";
  const auto [layer, rest] = layer_name(weight);
  if (layer < 0) return weight;
  const std::string_view mixer = "mamba.";
  const std::string part = rest.starts_with(mixer) ? "mixer." + rest.substr(mixer.size()) : rest == "input_layernorm.weight" ? "norm.weight" : rest;
  return fmt::format("backbone.layers.{}.{}", layer, part);
}

}  // namespace

std::vector<Family> mamba2_families() { return {{"mamba2", "Mamba2ForCausalLM", read, write, stored_name}}; }

}  // namespace gyr
