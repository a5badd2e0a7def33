// SPDX-License-Identifier: BSD-3-Clause
#include "src/gguf/architecture.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "modules/cost/flops.hpp"
#include "src/huggingface/family.hpp"
#include "src/huggingface/stored_names.hpp"

namespace gyr::gguf {

void Keys::set(const std::string& key, Value value) {
  const auto there = std::find_if(values_.begin(), values_.end(), [&](const KeyValue& v) { return v.key == key; });
  if (there != values_.end()) there->value = std::move(value);
  else values_.push_back({key, std::move(value)});
}

void Keys::count(const std::string& key, Index number) {
  ensure(number >= 0 && number <= std::numeric_limits<std::uint32_t>::max(), "{} is {}", key, number);
  set_prefixed(key, std::uint32_t(number));
}

const Architecture& architecture_of(const std::string& family, const std::string& model) {
  std::string known;
  for (const Architecture& a : architectures()) {
    if (a.family == family) return a;
    known += (known.empty() ? "" : ", ") + std::string(a.family);
  }
  fail(Exit::config, "{}: is a {}, which export-gguf does not support; it supports {}", model, family, known);
}

namespace {

struct Renamed {
  const char *ours, *theirs;
};
constexpr Renamed full_model[] = {{embedding_name, "token_embd.weight"},
                                  {"model.embed_positions.weight", "position_embd.weight"},
                                  {"model.final_layernorm.weight", "output_norm.weight"},
                                  {"model.final_layernorm.bias", "output_norm.bias"},
                                  {head_name, "output.weight"}};
// Names of weights inside a layer, without the endings ".weight" and ".bias".
constexpr Renamed in_layer[] = {{"pre_ff_layernorm", "ffn_norm"},       {"self_attn.q_proj", "attn_q"},
                                {"self_attn.k_proj", "attn_k"},         {"self_attn.v_proj", "attn_v"},
                                {"self_attn.o_proj", "attn_output"},    {"self_attn.q_norm", "attn_q_norm"},
                                {"self_attn.k_norm", "attn_k_norm"},    {"feed_forward.gate", "ffn_gate_inp"},
                                {"feed_forward.gate_proj", "ffn_gate"}, {"feed_forward.up_proj", "ffn_up"},
                                {"feed_forward.down_proj", "ffn_down"}, {"mamba.in_proj", "ssm_in"},
                                {"mamba.conv1d", "ssm_conv1d"},         {"mamba.norm", "ssm_norm"},
                                {"mamba.out_proj", "ssm_out"}};
// Complete names inside a layer, for weights without these endings.
constexpr Renamed without_ending[] = {
    {"self_attn.sinks", "attn_sinks.weight"}, {"mamba.dt_bias", "ssm_dt.bias"}, {"mamba.A_log", "ssm_a"}, {"mamba.D", "ssm_d"}};

template <std::size_t n>
const char* find(const Renamed (&names)[n], std::string_view ours) {
  const auto found = std::find_if(std::begin(names), std::end(names), [&](const Renamed& r) { return ours == r.ours; });
  return found == std::end(names) ? nullptr : found->theirs;
}

bool mixes(char symbol) { return symbol != '-' && symbol != 'E'; }

// "3.gate_proj.weight" of expert 3 becomes "ffn_gate_exps.weight", the tensor of all experts.
std::string name_of_experts(std::string_view part) {
  const std::string_view name = part.substr(part.find('.') + 1);
  return fmt::format("ffn_{}_exps{}", name.substr(0, name.find("_proj")), name.substr(name.rfind('.')));
}

std::string name_in_layer(char symbol, const std::string& part) {
  constexpr std::string_view experts = "feed_forward.experts.";
  if (part.starts_with(experts)) return name_of_experts(std::string_view(part).substr(experts.size()));
  if (const char* name = find(without_ending, part)) return name;
  const std::string_view stem = std::string_view(part).substr(0, part.rfind('.'));
  const char* name = stem == "input_layernorm"  ? (mixes(symbol) ? "attn_norm" : "ffn_norm")
                     : stem == "post_layernorm" ? (mixes(symbol) ? "post_attention_norm" : "post_ffw_norm")
                                                : find(in_layer, stem);
  ensure(name, "{} has no name in GGUF", part);
  return name + part.substr(stem.size());
}

PlannedTensor tensor_of(const ModelConfig& m, const Architecture& architecture, const Weight& w) {
  PlannedTensor t{"", {w.name}, w.shape};
  const auto [layer, part] = layer_name(w.name);
  if (layer < 0) {
    const char* name = find(full_model, w.name);
    ensure(name, "{} has no name in GGUF", w.name);
    t.name = name;
  } else {
    t.name = fmt::format("blk.{}.{}", layer / architecture.layers, name_in_layer(m.pattern[std::size_t(layer)], part));
    if (part.starts_with("feed_forward.experts.")) t.shape.insert(t.shape.begin(), 1);
  }
  if (architecture.adapt) architecture.adapt(m, layer, layer < 0 ? w.name : part, t);
  return t;
}

}  // namespace

std::vector<PlannedTensor> tensors_of(const ModelConfig& m, const Architecture& architecture) {
  std::vector<PlannedTensor> tensors;
  std::map<std::string, std::size_t> places;
  for (const Weight& w : declared_weights(m)) {
    PlannedTensor t = tensor_of(m, architecture, w);
    const auto [place, is_new] = places.emplace(t.name, tensors.size());
    if (is_new) {
      tensors.push_back(std::move(t));
      continue;
    }
    PlannedTensor& planned = tensors[place->second];
    planned.weights.push_back(w.name);
    planned.shape[0] += t.shape[0];
  }
  if (architecture.extra)
    for (PlannedTensor& t : architecture.extra(m)) tensors.push_back(std::move(t));
  return tensors;
}

// ---- GGUF keys ----

void put_widths(const ModelConfig& m, Index layers, Keys& keys) {
  keys.count("vocab_size", m.vocab_size);
  keys.count("block_count", layers);
  keys.count("embedding_length", m.hidden_size);
  keys.count("feed_forward_length", m.mlp.intermediate_size);
  keys.real(m.norm == NormType::rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", m.rms_norm_eps);
}

void put_attention(const ModelConfig& m, Keys& keys) {
  const AttentionConfig& a = m.attention;
  keys.count("attention.head_count", a.num_heads);
  keys.count("attention.head_count_kv", a.num_kv_heads);
  keys.count("attention.key_length", a.head_dim);
  keys.count("attention.value_length", a.head_dim);
}

void put_rotary(const AttentionConfig& a, Keys& keys) {
  keys.real("rope.freq_base", a.rope_theta);
  const RopeScaling& s = a.rope_scaling;
  if (s.type != RopeScaling::linear) return;
  keys.set_prefixed("rope.scaling.type", std::string("linear"));
  keys.real("rope.scaling.factor", s.factor);
}

void put_experts(const MoeConfig& c, Keys& keys) {
  keys.count("expert_count", c.experts);
  keys.count("expert_used_count", c.routing.top_k);
}

void put_mixer(const MambaConfig& c, Keys& keys) {
  keys.count("ssm.conv_kernel", c.conv_kernel);
  keys.count("ssm.inner_size", c.inner());
  keys.count("ssm.state_size", c.state_size);
  keys.count("ssm.time_step_rank", c.num_heads);
  keys.count("ssm.group_count", c.num_groups);
}

void put_windows(const ModelConfig& m, Index every, Keys& keys) {
  keys.count("attention.sliding_window", m.window.size);
  std::vector<bool> windows;
  bool usual = true;
  for (Index i = 0; i < m.layers(); i += 2) {
    windows.push_back(m.pattern[std::size_t(i)] == 'W');
    usual &= windows.back() == ((i / 2 + 1) % every != 0);
  }
  if (!usual) keys.set_prefixed("attention.sliding_window_pattern", windows);
}

// ---- checks for unsupported settings ----

void check_rotary(const AttentionConfig& a, const SupportChecks& s) {
  s.demand(a.rope_scaling.type != RopeScaling::dynamic, "frequencies that depend on the sequence length (rope_type dynamic)");
  s.demand(a.rope_scaling.type != RopeScaling::yarn, "exact YaRN scaling (rope_type yarn) and would generate other tokens");
}

void check_no_windows(const ModelConfig& m, const SupportChecks& s) {
  if (m.pattern.find('W') != std::string::npos && s.note)
    s.note(fmt::format("{}: llama.cpp's {} has no sliding-window attention; in texts longer than {} tokens it attends to all tokens", s.model,
                       s.architecture, m.window.size));
}

void check_mixer(const MambaConfig& c, const SupportChecks& s) {
  s.demand(c.norm != SsmNorm::norm_first, "a norm before the gate of a mixer (mamba_norm_before_gate)");
  s.demand(!c.in_bias && !c.out_bias, "biases on a mixer's projections");
  s.demand(c.conv_bias, "a convolution without bias");
  if ((c.dt_low > 0 || std::isfinite(c.dt_high)) && s.note)
    s.note(fmt::format("{}: time steps are clamped to [{}, {}], but llama.cpp ignores these limits", s.model, c.dt_low, c.dt_high));
}

// ---- changes of values ----

std::function<void(Index, Index, Index, float*)> scaled(std::function<float(Index row)> factor) {
  return [factor = std::move(factor)](Index first, Index rows, Index columns, float* x) {
    for (Index r = 0; r < rows; ++r) {
      const float f = factor(first + r);
      for (Index c = 0; c < columns; ++c) x[r * columns + c] *= f;
    }
  };
}

void adapt_mixer(const MambaConfig& c, const std::string& part, PlannedTensor& t) {
  if (part == "mamba.A_log") {
    t.shape = {c.num_heads, 1};
    t.change = [](Index, Index rows, Index columns, float* x) {
      for (Index i = 0; i < rows * columns; ++i) x[i] = -std::exp(x[i]);
    };
  } else if (part == "mamba.D") {
    t.shape = {c.num_heads, 1};
  } else if (part == "mamba.conv1d.weight") {
    t.shape = {c.channels(), c.conv_kernel};
  } else if (part == "mamba.norm.weight") {
    t.shape = {c.num_groups, c.inner() / c.num_groups};
  }
}

void interleave_rotary_rows(Index head_dim, PlannedTensor& t) {
  t.row_multiple = head_dim;
  t.change = [head_dim](Index, Index rows, Index columns, float* x) {
    std::vector<float> head(std::size_t(head_dim * columns));
    for (Index first = 0; first < rows; first += head_dim) {
      float* const here = x + first * columns;
      std::copy_n(here, head.size(), head.begin());
      for (Index r = 0; r < head_dim; ++r) std::copy_n(head.data() + (r % 2 * (head_dim / 2) + r / 2) * columns, columns, here + r * columns);
    }
  };
}

std::vector<PlannedTensor> rotary_factors(const ModelConfig& m) {
  const AttentionConfig& a = m.attention;
  if (a.rope_scaling.type != RopeScaling::llama3) return {};
  const Index half = a.head_dim / 2;
  const RopeFrequencies scaled_ones(a.rope_theta, a.rope_scaling, half), plain(a.rope_theta, {}, half);
  PlannedTensor t{"rope_freqs.weight", {}, {half}};
  for (Index j = 0; j < half; ++j) t.values.push_back(float(plain.at<double>(j) / scaled_ones.at<double>(j)));
  return {t};
}

}  // namespace gyr::gguf
