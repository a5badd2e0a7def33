// SPDX-License-Identifier: BSD-3-Clause
// Mamba2: every layer is a norm and a Mamba-2 mixer, and there is no position embedding. The gated norm is per group, as
// in Mamba-2's own code and in transformers from 5.23 on.
#include "src/huggingface/families/families.hpp"
#include "src/huggingface/mixer_keys.hpp"

namespace gyr::mamba2 {

namespace {

constexpr MixerKeys keys{"num_heads", "head_dim", "n_groups", "state_size", "conv_kernel", "chunk_size", "use_conv_bias", "use_bias"};

void read_layer(ConfigReader& r) {
  MambaConfig& m = r.config.model.mamba;
  m.num_heads = 128, m.head_dim = 64, m.num_groups = 8, m.state_size = 128, m.chunk_size = 256;
  read_mixer(r, keys);
  const Index expanded = r.integer("expand", 2, 1, widest) * r.config.model.hidden_size;
  r.demand(m.inner() == expanded, "expand", "times hidden_size is {}, but num_heads times head_dim is {} times {}; they must be equal", expanded,
           m.num_heads, m.head_dim);
  r.demand(r.flag("rms_norm", true), "rms_norm", "is false; only true is supported, because transformers normalizes the gated output in either case");
  r.silu("hidden_act");
  r.read_time_step_limit("time_step_limit");
  m.dt_init_low = r.positive("time_step_min", 1e-3);
  m.dt_init_high = r.positive("time_step_max", 0.1);
}

// Reads rescale_prenorm_residual and residual_in_fp32, which do not affect the model here. Only residual_in_fp32 is
// kept for an export.
void read_residual(ConfigReader& r) {
  if (r.flag("rescale_prenorm_residual", false))
    r.note(
        "rescale_prenorm_residual is true: weights are used as stored, but transformers divides out_proj by sqrt(num_hidden_layers) "
        "whenever it loads them");
  r.carry("residual_in_fp32");
  const std::string dtype = r.text("dtype", r.text("torch_dtype", ""));
  if (r.flag("residual_in_fp32", true) && dtype.ends_with("float16"))
    r.note("residual_in_fp32 is true: transformers keeps the residual stream in float32; here it has the precision of the run (train.precision)");
}

void read(ConfigReader& r) {
  ModelConfig& m = r.config.model;
  r.read_widths(32768, 4096, false);
  m.pattern.assign(std::size_t(r.integer("num_hidden_layers", 64, 1, most_layers)), 'M');
  m.rms_norm_eps = r.not_negative("layer_norm_epsilon", 1e-5);
  read_layer(r);
  read_residual(r);
  r.known("time_step_rank");
  r.read_tokens(1, 0, 2, r.config.positions);
}

void write(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  write_widths(m, j);
  j["num_hidden_layers"] = m.layers();
  write_mixer(m.mamba, keys, j);
  j["expand"] = m.mamba.inner() / m.hidden_size;
  j["rms_norm"] = true;
  j["hidden_act"] = "silu";
  j["layer_norm_epsilon"] = m.rms_norm_eps;
  j["residual_in_fp32"] = true;
  j["time_step_min"] = m.mamba.dt_init_low;
  j["time_step_max"] = m.mamba.dt_init_high;
  write_time_step_limit(m.mamba, j);
}

StoredPlace place(const ModelConfig&, const std::string& weight) {
  if (weight == "model.embed_tokens.weight") return {"backbone.embeddings.weight"};
  if (weight == "model.final_layernorm.weight") return {"backbone.norm_f.weight"};
  const auto [layer, rest] = layer_name(weight);
  if (layer < 0) return {weight};
  const std::string_view mixer = "mamba.";
  const std::string part = rest.starts_with(mixer) ? "mixer." + rest.substr(mixer.size()) : rest == "input_layernorm.weight" ? "norm.weight" : rest;
  return {fmt::format("backbone.layers.{}.{}", layer, part)};
}

}  // namespace

std::vector<Family> families() { return {{"mamba2", "Mamba2ForCausalLM", read, write, place}}; }

}  // namespace gyr::mamba2
