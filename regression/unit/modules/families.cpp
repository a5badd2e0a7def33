// SPDX-License-Identifier: BSD-3-Clause
// Families of Hugging Face models: a written config reads back unchanged, settings that no family can represent are
// named, and weights are exported as they were imported.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "modules/cost/flops.hpp"
#include "modules/objectives/classes.hpp"
#include "modules/objectives/masking.hpp"
#include "modules/objectives/multi_token.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/golden.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/huggingface/family.hpp"
#include "src/huggingface/model_folder.hpp"
#include "src/pretrained/conversion.hpp"
#include "src/pretrained/pretrained.hpp"

namespace gyr::testing::families_suite {
namespace {

namespace fs = std::filesystem;

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  Index from(Index least, Index most) { return std::uniform_int_distribution<Index>(least, most)(random_); }
  bool coin() { return from(0, 1) == 1; }

 private:
  std::mt19937 random_;
};

ModelConfig base_of(Draw& d) {
  ModelConfig m;
  m.vocab_size = d.from(8, 90), m.hidden_size = 16 * d.from(1, 4);
  m.tie_word_embeddings = d.coin();
  m.rms_norm_eps = d.coin() ? 1e-5 : 1e-6;
  return m;
}

ModelConfig llama(Draw& d) {
  ModelConfig m = base_of(d);
  for (Index i = d.from(1, 4); i > 0; --i) m.pattern += "*-";
  m.attention.num_kv_heads = d.from(1, 3), m.attention.num_heads = m.attention.num_kv_heads * d.from(1, 3);
  m.attention.head_dim = 2 * d.from(1, 9), m.attention.rope_theta = double(d.from(2, 100000));
  if (d.coin()) m.attention.rope_scaling = {RopeScaling::linear, double(d.from(1, 9))};
  else if (d.coin()) m.attention.rope_scaling = {RopeScaling::llama3, double(d.from(1, 9)), 0.5, double(d.from(1, 9)), d.from(1, 10000)};
  else if (d.coin())
    m.attention.rope_scaling = {RopeScaling::yarn, double(d.from(1, 9)), 1, double(d.from(2, 40)), d.from(1, 10000), 0.5 * double(d.from(0, 3))};
  if (d.from(0, 9) == 0) m.attention.rope_scaling = {RopeScaling::dynamic, double(d.from(1, 9)), 1, 4, d.from(1, 10000)};
  m.attention.bias = d.coin(), m.mlp.bias = d.coin(), m.mlp.intermediate_size = d.from(1, 50);
  return m;
}

ModelConfig mamba2(Draw& d) {
  ModelConfig m = base_of(d);
  m.pattern.assign(std::size_t(d.from(1, 5)), 'M');
  m.mamba.head_dim = 8, m.mamba.num_heads = d.from(1, 3) * m.hidden_size / 8, m.mamba.state_size = d.from(1, 20);
  m.mamba.conv_kernel = d.from(2, 5), m.mamba.norm = SsmNorm::gate_first, m.mamba.conv_bias = d.coin();
  m.mamba.in_bias = m.mamba.out_bias = d.coin();
  while (m.mamba.num_heads % (m.mamba.num_groups = d.from(1, m.mamba.num_heads)) != 0) {
  }
  if (d.coin()) m.mamba.dt_low = 0.1;
  if (d.coin()) m.mamba.dt_high = 0.7;
  return m;
}

void through_windows(Draw& d, ModelConfig& m) {
  std::replace(m.pattern.begin(), m.pattern.end(), '*', 'W');
  m.window.size = d.from(1, 5000);
}

void some_through_windows(Draw& d, ModelConfig& m) {
  for (char& symbol : m.pattern)
    if (symbol == '*' && d.coin()) symbol = 'W';
  m.window.size = d.from(1, 5000);
}

ModelConfig mistral(Draw& d) {
  ModelConfig m = llama(d);
  through_windows(d, m);
  m.attention.bias = m.mlp.bias = false;
  return m;
}

ModelConfig qwen2(Draw& d) {
  ModelConfig m = llama(d);
  some_through_windows(d, m);
  m.attention.bias = m.mlp.bias = false, m.attention.qkv_bias = true;
  return m;
}

ModelConfig mixtral(Draw& d) {
  ModelConfig m = llama(d);
  if (d.coin()) through_windows(d, m);
  std::replace(m.pattern.begin(), m.pattern.end(), '-', 'E');
  m.attention.bias = false;
  m.moe.experts = d.from(1, 9), m.moe.routing.top_k = d.from(1, m.moe.experts), m.moe.intermediate_size = d.from(1, 50);
  return m;
}

ModelConfig qwen3_moe(Draw& d) {
  ModelConfig m = mixtral(d);
  m.pattern = "*E";
  for (Index i = d.from(0, 3); i > 0; --i) m.pattern += d.coin() ? "*E" : "*-";
  if (d.coin()) through_windows(d, m);
  m.attention.qk_norm = true, m.attention.bias = d.coin(), m.mlp.bias = false, m.moe.routing.normalize = d.coin();
  return m;
}

ModelConfig gpt2(Draw& d) {
  ModelConfig m = base_of(d);
  for (Index i = d.from(1, 4); i > 0; --i) m.pattern += "*-";
  m.positions = d.from(1, 100), m.norm = NormType::layer;
  m.attention.num_heads = m.attention.num_kv_heads = Index(1) << d.from(0, 4), m.attention.head_dim = m.hidden_size / m.attention.num_heads;
  m.attention.rotary_fraction = 0, m.attention.bias = true;
  m.mlp = {.intermediate_size = d.from(1, 50), .activation = Activation(d.from(0, 3)), .gated = false, .bias = true};
  return m;
}

ModelConfig bert(Draw& d) {
  ModelConfig m = gpt2(d);
  m.tie_word_embeddings = true, m.norm_placement = NormPlacement::after, m.attention.causal = false;
  m.type_vocab_size = d.from(1, 3), m.pad_token_id = std::int32_t(d.from(-1, m.vocab_size - 1));
  m.objective = masked_tokens();
  return m;
}

std::vector<std::string> some_classes(Draw& d) {
  if (d.coin()) return numbered_classes(d.from(2, 12));
  return {"O", "B", d.coin() ? "I" : "a \"name\", quoted"};
}

ModelConfig bert_texts(Draw& d) {
  ModelConfig m = bert(d);
  m.tie_word_embeddings = false, m.objective = classify(some_classes(d));
  return m;
}

ModelConfig bert_tokens(Draw& d) {
  ModelConfig m = bert(d);
  m.tie_word_embeddings = false, m.objective = tag(some_classes(d));
  return m;
}

ModelConfig modernbert(Draw& d) {
  ModelConfig m = gpt2(d);
  m.positions = 0, m.tie_word_embeddings = true, m.attention.causal = false, m.embed_norm = true;
  m.norm = d.coin() ? NormType::layer : NormType::layer_no_bias;
  m.attention.num_heads = m.attention.num_kv_heads = Index(1) << d.from(0, 3), m.attention.head_dim = m.hidden_size / m.attention.num_heads;
  m.attention.rotary_fraction = 1, m.attention.rope_theta = double(d.from(2, 100000)), m.attention.bias = d.coin();
  m.mlp.gated = true, m.mlp.bias = d.coin();
  for (Index i = 0; i < m.layers(); i += 2)
    if (d.coin()) m.pattern[i] = 'W';
  m.window = {.size = d.from(1, 90), .rope_theta = double(d.from(2, 100000))};
  m.objective = masked_tokens({.head_bias = d.coin()});
  return m;
}

ModelConfig modernbert_texts(Draw& d) {
  ModelConfig m = modernbert(d);
  m.tie_word_embeddings = false, m.objective = classify(some_classes(d), d.coin() ? Pool::first : Pool::mean, ClassFront(d.from(1, 2)));
  return m;
}

ModelConfig modernbert_tokens(Draw& d) {
  ModelConfig m = modernbert(d);
  m.tie_word_embeddings = false, m.objective = tag(some_classes(d), ClassFront(d.from(1, 2)));
  return m;
}

ModelConfig falcon(Draw& d) {
  ModelConfig m = gpt2(d);
  m.positions = 0, m.attention.num_kv_heads = 1, m.attention.rotary_fraction = 1, m.attention.rope_theta = double(d.from(2, 100000));
  m.attention.num_heads = d.coin() ? 4 : 8, m.attention.head_dim = m.hidden_size / m.attention.num_heads;
  m.attention.bias = m.mlp.bias = d.coin();
  if (d.coin()) m.pattern.assign(std::size_t(d.from(1, 4)), 'B');
  return m;
}

ModelConfig gemma2(Draw& d) {
  ModelConfig m = llama(d);
  some_through_windows(d, m);
  m.mlp = {.intermediate_size = d.from(1, 50), .activation = Activation(d.from(0, 3))};
  m.norm_placement = NormPlacement::both, m.norm_offset = 1, m.embedding_multiplier = std::sqrt(double(m.hidden_size));
  m.attention.key_multiplier = std::sqrt(double(m.attention.head_dim) / double(d.from(1, 400)));
  if (d.coin()) m.attention.soft_cap = double(d.from(1, 60));
  if (d.coin()) m.lm_head_soft_cap = double(d.from(1, 60));
  return m;
}

ModelConfig gemma3(Draw& d) {
  ModelConfig m = gemma2(d);
  m.attention.soft_cap = 0, m.attention.qk_norm = true, m.window.rope_theta = double(d.from(2, 100000));
  m.attention.rope_scaling.truncate = m.attention.rope_scaling.type != RopeScaling::yarn || d.coin();
  return m;
}

ModelConfig qwen3(Draw& d) {
  ModelConfig m = llama(d);
  some_through_windows(d, m);
  m.mlp.bias = false, m.attention.qk_norm = true, m.mlp.activation = Activation(d.from(0, 3));
  return m;
}

ModelConfig mixer_of(Draw& d, ModelConfig m) {
  m.mamba.num_groups = d.from(1, 3), m.mamba.norm = SsmNorm::gate_first, m.mamba.conv_bias = d.coin(), m.mamba.in_bias = m.mamba.out_bias = d.coin();
  m.attention.num_kv_heads = d.from(1, 3), m.attention.num_heads = m.attention.num_kv_heads * d.from(1, 3), m.attention.head_dim = 4 * d.from(1, 9);
  m.mlp = {.intermediate_size = d.from(1, 50), .bias = d.coin()};
  return m;
}

ModelConfig bamba(Draw& d) {
  ModelConfig m = mixer_of(d, base_of(d));
  m.pattern = "M-*-";
  for (Index i = d.from(0, 3); i > 0; --i) m.pattern += d.coin() ? "M-" : "*-";
  m.mamba.head_dim = m.hidden_size / 8, m.mamba.num_heads = 16, m.mamba.num_groups = Index(1) << d.from(0, 2);
  m.attention.rope_theta = double(d.from(2, 100000)), m.attention.rotary_fraction = d.coin() ? 0.5 : 1, m.attention.bias = d.coin();
  if (d.coin()) m.mamba.dt_low = 0.1, m.mamba.dt_high = 0.7;
  return m;
}

ModelConfig nemotron_h(Draw& d) {
  ModelConfig m = mixer_of(d, base_of(d));
  m.pattern = "M*-";
  for (Index i = d.from(0, 4); i > 0; --i) m.pattern += "M*-"[d.from(0, 2)];
  m.mamba.num_heads = m.mamba.num_groups * d.from(1, 4), m.mamba.head_dim = d.from(1, 9);
  m.attention.rotary_fraction = 0, m.mlp.gated = false, m.mlp.activation = Activation(d.from(0, 3));
  if (d.coin()) m.mamba.dt_low = 0.1;
  return m;
}

ModelConfig gpt_oss(Draw& d) {
  ModelConfig m = llama(d);
  std::replace(m.pattern.begin(), m.pattern.end(), '-', 'E');
  some_through_windows(d, m);
  m.attention.sinks = true, m.attention.bias = d.coin(), m.mlp.bias = false;
  m.attention.rope_scaling.truncate = m.attention.rope_scaling.type != RopeScaling::yarn || d.coin();
  m.moe.experts = d.from(1, 9), m.moe.routing.top_k = d.from(1, m.moe.experts), m.moe.intermediate_size = d.from(1, 50);
  m.moe.activation = Activation::clamped_swiglu, m.moe.router_bias = m.moe.expert_bias = true;
  return m;
}

ModelConfig qwen3_next(Draw& d) {
  ModelConfig m = llama(d);
  m.pattern.clear();
  for (Index i = d.from(1, 4); i > 0; --i) m.pattern += d.coin() ? "GE" : "*E";
  m.pattern += d.coin() ? "GE" : "G-";
  m.norm_offset = 1;
  m.attention.bias = m.mlp.bias = false, m.attention.qk_norm = m.attention.output_gate = true;
  m.attention.head_dim = 8, m.attention.rotary_fraction = 0.25 * double(d.from(1, 4));
  m.mlp.activation = Activation::silu;
  m.delta.num_key_heads = d.from(1, 4), m.delta.num_heads = m.delta.num_key_heads * d.from(1, 3);
  m.delta.head_dim = d.from(1, 9), m.delta.key_dim = d.from(1, 9), m.delta.conv_kernel = d.from(2, 5);
  m.moe.experts = d.from(1, 9), m.moe.routing.top_k = d.from(1, m.moe.experts), m.moe.intermediate_size = d.from(1, 50);
  m.moe.routing.normalize = d.coin(), m.moe.shared_gate = true, m.moe.shared_intermediate_size = d.from(1, 50);
  return m;
}

ModelConfig granite(Draw& d) {
  ModelConfig m = mixer_of(d, base_of(d));
  const bool experts = d.coin();
  m.pattern = experts ? "ME*E" : "M-*-";
  for (Index i = d.from(0, 3); i > 0; --i) m.pattern += {d.coin() ? 'M' : '*', experts ? 'E' : '-'};
  m.mamba.head_dim = m.hidden_size / 8, m.mamba.num_heads = 16, m.mamba.num_groups = Index(1) << d.from(0, 2);
  m.mamba.in_bias = m.mamba.out_bias = d.coin();
  m.attention.rope_theta = double(d.from(2, 100000)), m.attention.rotary_fraction = double(d.from(0, 1)), m.attention.bias = d.coin();
  m.embedding_multiplier = 0.37 * double(d.from(1, 90)), m.lm_head_multiplier = 1 / (0.7 * double(d.from(1, 90)));
  const double residual = 0.11 * double(d.from(1, 20));
  m.attention.out_multiplier = m.mamba.out_multiplier = m.mlp.down_multiplier = m.moe.routing.scale = m.moe.shared_multiplier = residual;
  m.attention.key_multiplier = 0.013 * double(d.from(1, 90)) * std::sqrt(double(m.attention.head_dim));
  m.mlp.bias = false;
  m.moe.experts = d.from(1, 9), m.moe.routing.top_k = d.from(1, m.moe.experts);
  m.moe.intermediate_size = d.from(1, 50), m.moe.shared_intermediate_size = d.from(1, 50);
  return m;
}

ModelConfig nemotron_3(Draw& d) {
  ModelConfig m = nemotron_h(d);
  m.pattern += "E";
  m.mlp.bias = false;
  m.moe.gated = false, m.moe.activation = m.mlp.activation, m.moe.bias = true;
  m.moe.routing.score = Routing::sigmoid, m.moe.routing.normalize = d.coin(), m.moe.routing.scale = 0.3 * double(d.from(1, 20));
  m.moe.routing.groups = d.from(1, 3), m.moe.routing.top_groups = d.from(1, m.moe.routing.groups);
  m.moe.experts = m.moe.routing.groups * d.from(1, 5), m.moe.routing.top_k = d.from(1, m.moe.experts / m.moe.routing.groups);
  m.moe.intermediate_size = d.from(1, 50), m.moe.shared_intermediate_size = d.from(1, 50);
  if (d.coin()) m.moe.latent_size = d.from(1, 50);
  return m;
}

ModelConfig phi3(Draw& d) {
  ModelConfig m = llama(d);
  if (d.coin()) through_windows(d, m);
  m.attention.bias = m.mlp.bias = false, m.attention.rope_scaling = {};
  m.attention.head_dim = 8, m.attention.rotary_fraction = 0.25 * double(d.from(1, 3));
  return m;
}

ModelConfig smollm3(Draw& d) {
  ModelConfig m = llama(d);
  some_through_windows(d, m);
  m.pattern[0] = 'W', m.window.rotary = false;
  if (d.coin()) m.window.size = longest;
  return m;
}

ModelConfig lfm2(Draw& d) {
  ModelConfig m = llama(d);
  m.pattern[0] = 'C';
  for (Index i = 2; i < m.layers(); i += 2)
    if (d.coin()) m.pattern[i] = 'C';
  m.pattern += "*-";
  m.attention.bias = m.mlp.bias = false, m.attention.qk_norm = true;
  m.short_conv = {.kernel = d.from(2, 5), .bias = d.coin()};
  return m;
}

ModelConfig olmo2(Draw& d) {
  ModelConfig m = llama(d);
  m.norm_placement = NormPlacement::output, m.attention.qk_norm = m.attention.qk_norm_all_heads = true;
  m.mlp.bias = false, m.mlp.activation = Activation(d.from(0, 3));
  return m;
}

ModelConfig olmo3(Draw& d) {
  ModelConfig m = olmo2(d);
  some_through_windows(d, m);
  m.pattern[0] = 'W', m.window.rope_theta = double(d.from(2, 100000));
  m.attention.rope_scaling.truncate = m.attention.rope_scaling.type != RopeScaling::yarn || d.coin();
  return m;
}

ModelConfig glm4_moe(Draw& d) {
  ModelConfig m = llama(d);
  m.pattern.clear();
  const Index layers = d.from(1, 5), dense = d.from(0, layers - 1);
  for (Index i = 0; i < layers; ++i) m.pattern += i < dense ? "*-" : "*E";
  m.attention.qkv_bias = m.attention.bias, m.attention.bias = m.mlp.bias = false, m.attention.qk_norm = d.coin();
  m.attention.rope_scaling = {}, m.attention.head_dim = 8, m.attention.rotary_fraction = 0.25 * double(d.from(1, 4));
  Routing& r = m.moe.routing;
  r.score = Routing::sigmoid, r.normalize = d.coin(), r.scale = 0.3 * double(d.from(1, 20));
  r.groups = d.from(1, 3), r.top_groups = d.from(1, r.groups);
  m.moe.experts = r.groups * d.from(1, 5), r.top_k = d.from(1, m.moe.experts / r.groups);
  m.moe.bias = true, m.moe.intermediate_size = d.from(1, 50), m.moe.shared_intermediate_size = m.moe.intermediate_size * d.from(1, 3);
  return m;
}

template <ModelConfig (*full)(Draw&)>
ModelConfig ternary(Draw& d) {
  ModelConfig m = full(d);
  m.linear = LinearLayers::ternary;
  return m;
}

struct Drawn {
  const char* model_type;
  ModelConfig (*draw)(Draw&);
};
constexpr Drawn drawn[] = {{"llama", llama},
                           {"mistral", mistral},
                           {"qwen2", qwen2},
                           {"mixtral", mixtral},
                           {"qwen3_moe", qwen3_moe},
                           {"mamba2", mamba2},
                           {"gpt2", gpt2},
                           {"bert", bert},
                           {"qwen3", qwen3},
                           {"falcon", falcon},
                           {"bamba", bamba},
                           {"nemotron_h", nemotron_h},
                           {"bert", bert_texts},
                           {"bert", bert_tokens},
                           {"gemma2", gemma2},
                           {"gemma3_text", gemma3},
                           {"modernbert", modernbert},
                           {"modernbert", modernbert_texts},
                           {"modernbert", modernbert_tokens},
                           {"gpt_oss", gpt_oss},
                           {"qwen3_next", qwen3_next},
                           {"granitemoehybrid", granite},
                           {"nemotron_h", nemotron_3},
                           {"phi3", phi3},
                           {"smollm3", smollm3},
                           {"lfm2", lfm2},
                           {"olmo2", olmo2},
                           {"olmo3", olmo3},
                           {"glm4_moe", glm4_moe},
                           {"llama", ternary<llama>},
                           {"qwen2", ternary<qwen2>}};

TEST(families, written_config_reads_back_unchanged) {
  const unsigned seed = testing::seed_of_run();
  Draw d(seed);
  for (int i = 0; i < 600; ++i) {
    const Drawn& family_drawn = drawn[d.from(0, Index(std::size(drawn)) - 1)];
    HuggingFaceConfig config;
    config.model = family_drawn.draw(d);
    const std::string type = family_drawn.model_type;
    const double p = 0.25 * double(d.from(0, 3));
    config.model.dropout.attention = type == "mamba2" ? 0 : p;
    if (type == "phi3") config.model.dropout.residual = p / 2, config.model.dropout.embedding = p / 4;
    if (type == "gpt2" || type == "bert" || type == "falcon") config.model.dropout.residual = p / 2;
    if (type == "gpt2" || type == "bert") config.model.dropout.embedding = p / 2;
    if (type == "bert") config.model.dropout.head = p / 4;
    SCOPED_TRACE(fmt::format("seed {} draw {}", seed, i));
    const Family& family = family_for(config.model);
    EXPECT_STREQ(family.model_type, family_drawn.model_type);
    const std::string text = write_config_json(config);
    const HuggingFaceConfig back = parse_config_json(text, "written");
    EXPECT_TRUE(back.notes.empty()) << back.notes.front();
    EXPECT_EQ(back.model.pattern, config.model.pattern);
    EXPECT_EQ(back.model.linear, config.model.linear);
    EXPECT_STREQ(back.model.objective->name(), config.model.objective->name());
    EXPECT_EQ(back.model.objective->classes(), config.model.objective->classes());
    EXPECT_EQ(write_config_json(back), text);
    for (double DropoutConfig::*kind : {&DropoutConfig::attention, &DropoutConfig::residual, &DropoutConfig::embedding, &DropoutConfig::head})
      EXPECT_EQ(back.model.dropout.*kind, config.model.dropout.*kind);
  }
}

// weight_scale of a packed folder is 1 / mean |W| for one class of layers and mean |W| for the other, so that none is read by guessing.
TEST(families, packed_ternary_weights_are_refused_by_key) {
  const auto read = [](const char* type, const std::string& how) {
    return parse_config_json(
        fmt::format(R"({{"model_type": "{}", "rope_theta": 1e4, "quantization_config": {{"quant_method": "bitnet"{}}}}})", type, how), "file");
  };
  const std::string online = R"(, "linear_class": "autobitlinear", "quantization_mode": "online")";
  EXPECT_EQ(read("llama", online).model.linear, LinearLayers::ternary);
  EXPECT_EQ(read("qwen3", online + R"(, "modules_to_not_convert": ["lm_head"])").model.linear, LinearLayers::ternary);
  const std::pair<std::string, const char*> refused[] = {
      {"", "quantization_config.linear_class is \"bitlinear\"; supported is \"autobitlinear\""},
      {R"(, "linear_class": "autobitlinear")", "quantization_config.quantization_mode is \"offline\"; supported is \"online\""},
      {online + R"(, "use_rms_norm": true)", "quantization_config.use_rms_norm is true"},
      {online + R"(, "modules_to_not_convert": ["q_proj"])", "quantization_config.modules_to_not_convert is "}};
  for (const auto& [how, text] : refused) {
    const Error error = error_of([&] { read("llama", how); });
    EXPECT_EQ(error.code, Exit::data);
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
  const Error error = error_of([&] { read("gpt2", online); });
  EXPECT_NE(std::string(error.what()).find("quantization_config is set"), std::string::npos) << error.what();
}

// Keys that a file lacks have the defaults of its class.
TEST(families, dropout_is_read_with_class_defaults) {
  const auto read = [](const char* type, const char* more) {
    const DropoutConfig d = parse_config_json(fmt::format(R"({{"model_type": "{}", "rope_theta": 1e4{}}})", type, more), "file").model.dropout;
    return std::array{d.embedding, d.residual, d.attention, d.head};
  };
  EXPECT_EQ(read("gpt2", ""), (std::array{0.1, 0.1, 0.1, 0.0}));
  EXPECT_EQ(read("gpt2", R"(, "embd_pdrop": 0.2, "resid_pdrop": 0.3, "attn_pdrop": 0)"), (std::array{0.2, 0.3, 0.0, 0.0}));
  EXPECT_EQ(read("bert", ""), (std::array{0.1, 0.1, 0.1, 0.1}));
  EXPECT_EQ(read("bert", R"(, "hidden_dropout_prob": 0.2, "classifier_dropout": 0.4)"), (std::array{0.2, 0.2, 0.1, 0.4}));
  EXPECT_EQ(read("falcon", R"(, "hidden_dropout": 0.2)"), (std::array{0.0, 0.2, 0.0, 0.0}));
  EXPECT_EQ(read("llama", R"(, "attention_dropout": 0.2)"), (std::array{0.0, 0.0, 0.2, 0.0}));
  EXPECT_EQ(read("deepseek_v3", R"(, "attention_dropout": 0.2)"), (std::array{0.0, 0.0, 0.2, 0.0}));
  const Error error = error_of([&] { read("llama", R"(, "attention_dropout": 1)"); });
  EXPECT_EQ(error.code, Exit::data);
  EXPECT_NE(std::string(error.what()).find("attention_dropout is 1; it must be between 0 and 0.99"), std::string::npos) << error.what();
}

TEST(families, export_keeps_original_family_or_names_obstacle) {
  Draw d(7);
  ModelConfig m = llama(d);
  m.attention.bias = m.mlp.bias = false;
  EXPECT_STREQ(family_for(m, "mistral").model_type, "mistral");
  m.attention.bias = true;
  EXPECT_STREQ(family_for(m, "mistral").model_type, "llama");
  m.mlp.gate_multiplier = 2;
  const Error error = error_of([&] { family_for(m, "mistral"); });
  EXPECT_EQ(error.code, Exit::config);
  EXPECT_NE(std::string(error.what()).find("the nearest is LlamaForCausalLM: model.mlp.gate_multiplier is 2"), std::string::npos) << error.what();
}

TEST(families, class_names_are_read_from_config) {
  const auto read = [](const char* type, const char* more) {
    return parse_config_json(fmt::format(R"({{"model_type": "bert", "architectures": ["BertFor{}"]{}}})", type, more), "file").model.objective;
  };
  EXPECT_STREQ(read("MaskedLM", "")->name(), "mlm");
  EXPECT_STREQ(read("PreTraining", "")->name(), "mlm");
  for (const char* type : {"SequenceClassification", "TokenClassification"}) {
    EXPECT_STREQ(read(type, "")->name(), type[0] == 'S' ? "classify" : "tag");
    EXPECT_EQ(read(type, "")->classes(), numbered_classes(2));
    EXPECT_EQ(read(type, R"(, "num_labels": 4)")->classes(), numbered_classes(4));
    EXPECT_EQ(read(type, R"(, "id2label": {"1": "b", "0": "a", "2": "c"}, "label2id": null)")->classes(), (std::vector<std::string>{"a", "b", "c"}));
    const std::pair<const char*, const char*> refused[] = {{R"(, "id2label": {"0": "a", "2": "c"})", "id2label has no name for class 1 of 2"},
                                                           {R"(, "id2label": ["a", "b"])", "id2label is [\"a\",\"b\"], which is not an object"},
                                                           {R"(, "id2label": {"0": "a"})", "id2label has 1 classes"},
                                                           {R"(, "problem_type": "regression")", "problem_type is \"regression\""}};
    for (const auto& [more, message] : refused)
      EXPECT_NE(std::string(error_of([&, more = more] { read(type, more); }).what()).find(message), std::string::npos) << message;
  }
}

// Keys that a file lacks have the defaults of transformers.
TEST(families, sliding_windows_are_read_from_config) {
  const std::string both = R"("vocab_size": 40, "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3)";
  const auto read = [&](const char* type, const char* more) {
    return parse_config_json(fmt::format(R"({{"model_type": "{}", {}{}}})", type, both, more), "file").model;
  };
  EXPECT_EQ(read("mistral", "").pattern, "W-W-W-");
  EXPECT_EQ(read("mistral", "").window.size, 4096);
  EXPECT_EQ(read("mistral", R"(, "sliding_window": 77)").window.size, 77);
  EXPECT_EQ(read("mistral", R"(, "sliding_window": null)").pattern, "*-*-*-");
  EXPECT_EQ(read("mixtral", "").pattern, "*E*E*E");
  EXPECT_EQ(read("mixtral", R"(, "sliding_window": 5)").pattern, "WEWEWE");
  for (const char* qwen : {"qwen2", "qwen3"}) {
    EXPECT_EQ(read(qwen, R"(, "sliding_window": 5, "max_window_layers": 1)").pattern, "*-*-*-");
    EXPECT_EQ(read(qwen, R"(, "use_sliding_window": true)").pattern, "*-*-*-");  // by default, windows begin at layer 28
    EXPECT_EQ(read(qwen, R"(, "use_sliding_window": true, "max_window_layers": 1)").pattern, "*-W-W-");
    EXPECT_EQ(read(qwen, R"(, "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 0)").window.size, 9);
    EXPECT_EQ(read(qwen, R"(, "use_sliding_window": true, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"])").pattern,
              "W-*-W-");
    for (const char* bad : {R"(, "layer_types": ["sliding_attention", "full_attention", "full_attention"])", R"(, "layer_types": ["full_attention"])",
                            R"(, "layer_types": ["full_attention", "full_attention", "chunked_attention"])"})
      EXPECT_NE(std::string(error_of([&] { read(qwen, bad); }).what()).find("layer_types is "), std::string::npos) << bad;
  }
  EXPECT_NE(std::string(error_of([&] { read("mistral", R"(, "sliding_window": 0)"); }).what()).find("sliding_window is 0"), std::string::npos);
}

// As in transformers, rope_scaling takes precedence over rope_parameters, and the original length defaults to
// max_position_embeddings.
TEST(families, rope_scaling_is_read_as_in_transformers) {
  const auto read = [&](const std::string& more) {
    return parse_config_json(R"({"model_type": "llama", "max_position_embeddings": 96, "rope_theta": 5e3)" + more + "}", "file").model.attention;
  };
  const auto scaling = [&](const std::string& more) { return read(more).rope_scaling; };
  const std::string yarn = R"("rope_type": "yarn", "factor": 4)", llama3 = R"("rope_type": "llama3", "factor": 4)";
  for (const std::string& type : {yarn, llama3}) {
    EXPECT_EQ(scaling(R"(, "rope_scaling": {)" + type + "}").original_positions, 96);
    EXPECT_EQ(scaling(R"(, "rope_parameters": {)" + type + R"(, "original_max_position_embeddings": 24})").original_positions, 24);
    EXPECT_EQ(scaling(R"(, "original_max_position_embeddings": 12, "rope_parameters": {)" + type + R"(, "original_max_position_embeddings": 24})")
                  .original_positions,
              12);
  }
  EXPECT_EQ(scaling("").original_positions, RopeScaling{}.original_positions);
  const AttentionConfig both = read(R"(, "rope_scaling": {"type": "linear", "factor": 3}, "rope_parameters": {)" + yarn + R"(, "rope_theta": 7})");
  EXPECT_EQ(both.rope_scaling.type, RopeScaling::linear);
  EXPECT_EQ(both.rope_scaling.factor, 3);
  EXPECT_EQ(both.rope_theta, 5e3);
  EXPECT_EQ(scaling(R"(, "rope_scaling": {}, "rope_parameters": {)" + yarn + "}").type, RopeScaling::yarn);
  EXPECT_GT(scaling(R"(, "rope_scaling": {)" + yarn + R"(, "mscale": 0.7, "mscale_all_dim": 0.4})").attention_factor, 1);
  for (const char* left_out : {R"(, "mscale": 0, "mscale_all_dim": 0.4})", R"(, "mscale": 0.7, "mscale_all_dim": 0})", R"(, "mscale": 0.7})",
                               R"(, "mscale": null, "mscale_all_dim": 0.4})"})
    EXPECT_EQ(scaling(R"(, "rope_scaling": {)" + yarn + left_out).attention_factor, 0) << left_out;
  const auto refused = [&](const std::string& more, const char* text) {
    EXPECT_NE(std::string(error_of([&] { read(more); }).what()).find(text), std::string::npos) << more;
  };
  refused(R"(, "rope_scaling": {"rope_type": "linear"})", "rope_scaling.factor is missing");
  refused(R"(, "rope_scaling": {)" + yarn + R"(, "attention_factor": 0})", "rope_scaling.attention_factor is 0");
}

// Files with missing or contradictory keys, for which transformers would compute something else than this program.
TEST(families, contradictory_or_ignored_keys_are_refused) {
  const auto refused = [&](const char* file, const char* text) {
    EXPECT_NE(std::string(error_of([&] { parse_config_json(file, "file"); }).what()).find(text), std::string::npos) << file;
  };
  refused(R"({"model_type": "gpt_oss", "rope_theta": 7, "rope_scaling": null})", "rope_parameters is missing");
  refused(R"({"model_type": "deepseek_v3", "qk_rope_head_dim": 4, "head_dim": 6})", "head_dim is 6, but qk_rope_head_dim is 4");
  refused(R"({"model_type": "falcon", "num_ln_in_parallel_attn": 2})", "num_ln_in_parallel_attn is 2");
  refused(R"({"model_type": "modernbert", "sliding_window": 2})", "sliding_window is 2");
  refused(R"({"model_type": "modernbert", "rope_theta": 7})", "rope_theta is 7");
  refused(R"({"model_type": "gpt2", "is_causal": false})", "is_causal is false");
  refused(R"({"model_type": "gpt2", "n_head": 4, "num_attention_heads": 6})", "num_attention_heads is 6, but it is another name of n_head");
  refused(R"({"model_type": "t5", "num_layers": 4, "num_hidden_layers": 3})", "num_hidden_layers is 3, but it is another name of num_layers");
  refused(R"({"model_type": "mixtral", "num_experts": 4})", "num_experts is 4, but it is another name of num_local_experts");
  refused(R"({"model_type": "gpt_oss", "rope_parameters": {}, "num_experts": 4})", "num_experts is 4, but it is another name of num_local_experts");
  refused(R"({"model_type": "nemotron_h", "layers_block_type": ["mamba"], "layer_types": ["mlp"]})",
          "layer_types is [\"mlp\"], but it is another name");
  refused(R"({"model_type": "bamba", "partial_rotary_factor": 1})", "partial_rotary_factor is 1, which transformers ignores here in favour of 0.5");
  refused(R"({"model_type": "bert", "architectures": ["BertForTokenClassification"], "id2label": {"0": "a", "1": "b"}, "num_labels": 3})",
          "num_labels is 3, but id2label has 2 classes");
  for (const char* type : {"gemma3_text", "modernbert"}) {
    const auto with = [&](const char* rope) { return fmt::format(R"({{"model_type": "{}", {}}})", type, rope); };
    refused(with(R"("rope_scaling": {"type": "linear", "factor": 8})").c_str(), "rope_scaling has the key \"type\", which transformers ignores");
    refused(with(R"("rope_scaling": {"full_attention": {"rope_theta": 7}})").c_str(), "rope_scaling is");
    refused(with(R"("rope_parameters": {"rope_theta": 7})").c_str(),
            "rope_parameters is {\"rope_theta\":7}; RoPE settings per layer type must be objects");
  }
  refused(R"({"model_type": "modernbert", "rope_scaling": {"rope_theta": 7}})", "use global_rope_theta and local_rope_theta instead");
}

// Later versions of transformers write the keys derived from feed_forward_proj next to it. These keys take precedence.
TEST(families, t5_activations_are_read_from_config) {
  const auto read = [](const char* more) { return parse_config_json(fmt::format(R"({{"model_type": "t5"{}}})", more), "file").model.mlp; };
  EXPECT_EQ(read(R"(, "feed_forward_proj": "gated-gelu")").activation, Activation::gelu_tanh);
  EXPECT_EQ(read(R"(, "feed_forward_proj": "gated-silu", "dense_act_fn": "gelu")").activation, Activation::gelu);
  EXPECT_FALSE(read(R"(, "feed_forward_proj": "gated-silu", "is_gated_act": false)").gated);
  EXPECT_TRUE(read(R"(, "feed_forward_proj": "relu", "is_gated_act": true)").gated);
}

// Keys that only transformers uses are taken from the imported folder, if the model is exported as the same class.
TEST(families, keys_only_transformers_uses_are_exported_again) {
  const auto back = [](const char* file, const char* family) {
    return nlohmann::json::parse(write_config_json(parse_config_json(file, "file"), *find_family(family)));
  };
  const nlohmann::json modern =
      back(R"({"model_type": "modernbert", "cls_token_id": 7, "sep_token_id": null, "sparse_prediction": true})", "modernbert");
  EXPECT_EQ(modern.at("cls_token_id"), 7);
  EXPECT_EQ(modern.at("sep_token_id"), nullptr);
  EXPECT_EQ(modern.at("sparse_prediction"), true);
  const nlohmann::json t5 = back(R"({"model_type": "t5", "decoder_start_token_id": 3, "pad_token_id": 4})", "t5");
  EXPECT_EQ(t5.at("decoder_start_token_id"), 3);
  EXPECT_EQ(t5.at("pad_token_id"), 4);
  EXPECT_EQ(back(R"({"model_type": "t5", "decoder_start_token_id": 3})", "t5").at("pad_token_id"), 3);
  const char* const mamba = R"({"model_type": "mamba2", "n_groups": 1, "residual_in_fp32": false, "rescale_prenorm_residual": true})";
  EXPECT_EQ(back(mamba, "mamba2").at("residual_in_fp32"), false);
  EXPECT_FALSE(back(mamba, "mamba2").contains("rescale_prenorm_residual")) << "transformers would use it to rescale weights while loading";
  EXPECT_FALSE(back(mamba, "nemotron_h").contains("residual_in_fp32"));
  const Folder folder;
  const auto silent = [](const std::string&) {};
  import_folder(golden("modernbert").folder, folder / "checkpoint", false, silent);
  export_folder(folder / "checkpoint", folder / "out", {{}, Index(1) << 30, {}, false}, silent);
  const auto parsed = [](const fs::path& of) { return nlohmann::json::parse(contents(of / config_file_name)).at("sep_token_id"); };
  EXPECT_EQ(parsed(folder / "out"), parsed(golden("modernbert").folder));
}

TEST(families, mamba2_residual_precision_differences_are_noted) {
  const auto notes = [](const char* more) {
    return parse_config_json(fmt::format(R"({{"model_type": "mamba2", "n_groups": 1{}}})", more), "file").notes.size();
  };
  EXPECT_EQ(notes(""), 0u);
  EXPECT_EQ(notes(R"(, "dtype": "bfloat16")"), 1u);
  EXPECT_EQ(notes(R"(, "torch_dtype": "bfloat16", "residual_in_fp32": false)"), 0u);
  EXPECT_EQ(notes(R"(, "rescale_prenorm_residual": true)"), 1u);
}

TEST(families, gemma2_config_is_read_correctly) {
  const auto read = [&](const char* more) {
    return parse_config_json(fmt::format(R"({{"model_type": "gemma2", "num_hidden_layers": 3{}}})", more), "file").model;
  };
  const ModelConfig m = read("");
  EXPECT_EQ(m.pattern, "W-*-W-");
  EXPECT_EQ(m.embedding_multiplier, 48);
  EXPECT_EQ(m.attention.head_dim, 256);
  EXPECT_EQ(m.attention.key_multiplier, 1);
  EXPECT_EQ(m.attention.soft_cap, 50);
  EXPECT_EQ(m.lm_head_soft_cap, 30);
  EXPECT_EQ(m.mlp.activation, Activation::gelu_tanh);
  EXPECT_EQ(read(R"(, "query_pre_attn_scalar": 64)").attention.key_multiplier, 2);
  EXPECT_EQ(read(R"(, "attn_logit_softcapping": null, "final_logit_softcapping": null)").attention.soft_cap, 0);
  EXPECT_EQ(read(R"(, "sliding_window": null)").pattern, "*-*-*-");
  EXPECT_NE(std::string(error_of([&] { read(R"(, "use_bidirectional_attention": true)"); }).what()).find("use_bidirectional_attention is true"),
            std::string::npos);
  EXPECT_NE(std::string(error_of([&] { read(R"(, "final_logit_softcapping": -1)"); }).what()).find("final_logit_softcapping is -1"),
            std::string::npos);
}

// Keys of the published file of Gemma 3 4B, as transformers before version 5 wrote them, and as it writes them now.
TEST(families, gemma3_config_is_read_correctly) {
  const auto read = [&](const char* more) {
    return parse_config_json(fmt::format(R"({{"model_type": "gemma3_text", "num_hidden_layers": 7{}}})", more), "file").model;
  };
  EXPECT_EQ(read("").pattern, "W-W-W-W-W-*-W-");
  EXPECT_EQ(read(R"(, "sliding_window_pattern": 3)").pattern, "W-W-*-W-W-*-W-");
  EXPECT_TRUE(read("").attention.qk_norm);
  EXPECT_EQ(read("").attention.soft_cap, 0);
  EXPECT_EQ(read("").lm_head_soft_cap, 0);
  for (const char* form : {R"(, "rope_theta": 5e5, "rope_local_base_freq": 77, "rope_scaling": {"rope_type": "linear", "factor": 8})",
                           R"(, "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 5e5},
                                                    "sliding_attention": {"rope_type": "default", "rope_theta": 77}})"}) {
    const ModelConfig m = read(form);
    EXPECT_EQ(m.attention.rope_theta, 5e5);
    EXPECT_EQ(m.attention.rope_scaling.type, RopeScaling::linear);
    EXPECT_EQ(m.attention.rope_scaling.factor, 8);
    EXPECT_EQ(m.window.rope_theta, 77);
  }
  // `truncate` is read where transformers 5.24 reads it, and noted elsewhere.
  const std::string yarn = R"("rope_type": "yarn", "factor": 4, "rope_theta": 50, "original_max_position_embeddings": 16)";
  const auto truncates = [&](const std::string& inside, const std::string& next_to, std::size_t notes) {
    const std::string more = fmt::format(R"(, "rope_parameters": {{"full_attention": {{{}{}}}{}}})", yarn, inside, next_to);
    const HuggingFaceConfig c = parse_config_json(fmt::format(R"({{"model_type": "gemma3_text", "num_hidden_layers": 7{}}})", more), "file");
    EXPECT_EQ(c.notes.size(), notes) << more;
    return c.model.attention.rope_scaling.truncate;
  };
  EXPECT_TRUE(truncates("", "", 0));
  EXPECT_TRUE(truncates(R"(, "truncate": false)", "", 1));
  EXPECT_FALSE(truncates("", R"(, "truncate": false)", 0));
  EXPECT_FALSE(truncates(R"(, "truncate": false)", R"(, "truncate": false)", 0));
  EXPECT_TRUE(truncates(R"(, "truncate": false)", R"(, "truncate": true)", 1));
  const auto refused = [&](const char* more, const char* text) {
    EXPECT_NE(std::string(error_of([&] { read(more); }).what()).find(text), std::string::npos) << more;
  };
  refused(R"(, "rope_parameters": {"full_attention": {}, "truncate": null})", "rope_parameters.truncate is null");
  refused(R"(, "rope_parameters": {"full_attention": {}, "others": {}})", "rope_parameters.others is not a layer type");
  refused(R"(, "rope_parameters": {"sliding_attention": {"rope_type": "linear"}})", "rope_parameters.sliding_attention.rope_type is \"linear\"");
  refused(R"(, "rope_parameters": {"sliding_attention": {"rope_theta": 0}})", "rope_parameters.sliding_attention.rope_theta is 0");
}

// Verbatim files of google-bert/bert-base-uncased and answerdotai/ModernBERT-base on the Hugging Face Hub.
TEST(families, published_encoder_configs_are_read_correctly) {
  const HuggingFaceConfig bert = parse_config_json(
      R"({"architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "gradient_checkpointing": false, "hidden_act": "gelu",
          "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-12,
          "max_position_embeddings": 512, "model_type": "bert", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0,
          "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0", "type_vocab_size": 2, "use_cache": true, "vocab_size": 30522})",
      "file");
  EXPECT_EQ(bert.notes.size(), 0u);
  EXPECT_EQ(bert.model.dropout.attention, 0.1);
  EXPECT_EQ(parameter_count(bert.model), 109'514'298);
  const HuggingFaceConfig modern = parse_config_json(
      R"({"architectures": ["ModernBertForMaskedLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 50281,
          "classifier_activation": "gelu", "classifier_bias": false, "classifier_dropout": 0.0, "classifier_pooling": "mean", "cls_token_id": 50281,
          "decoder_bias": true, "deterministic_flash_attn": false, "embedding_dropout": 0.0, "eos_token_id": 50282, "global_attn_every_n_layers": 3,
          "global_rope_theta": 160000.0, "gradient_checkpointing": false, "hidden_activation": "gelu", "hidden_size": 768,
          "initializer_cutoff_factor": 2.0, "initializer_range": 0.02, "intermediate_size": 1152, "layer_norm_eps": 1e-05, "local_attention": 128,
          "local_rope_theta": 10000.0, "max_position_embeddings": 8192, "mlp_bias": false, "mlp_dropout": 0.0, "model_type": "modernbert",
          "norm_bias": false, "norm_eps": 1e-05, "num_attention_heads": 12, "num_hidden_layers": 22, "pad_token_id": 50283,
          "position_embedding_type": "absolute", "sep_token_id": 50282, "tie_word_embeddings": true, "torch_dtype": "float32",
          "transformers_version": "4.47.0.dev0", "vocab_size": 50368})",
      "file");
  EXPECT_TRUE(modern.notes.empty()) << modern.notes.front();
  EXPECT_EQ(modern.model.pattern, "*-W-W-*-W-W-*-W-W-*-W-W-*-W-W-*-W-W-*-W-W-*-");
  EXPECT_EQ(modern.model.window.size, 65);
  EXPECT_EQ(modern.model.window.rope_theta, 1e4);
  EXPECT_EQ(modern.model.attention.rope_theta, 160000);
  EXPECT_EQ(modern.model.norm, NormType::layer_no_bias);
  EXPECT_EQ(parameter_count(modern.model), 149'655'232);  // 149 million parameters
  const auto refused = [&](const char* more, const char* text) {
    const auto read = [&] { parse_config_json(fmt::format(R"({{"model_type": "modernbert"{}}})", more), "file"); };
    EXPECT_NE(std::string(error_of(read).what()).find(text), std::string::npos) << more;
  };
  refused(R"(, "decoder_bias": false)", "decoder_bias is false");
  refused(R"(, "tie_word_embeddings": false)", "tie_word_embeddings is false");
  refused(R"(, "classifier_activation": "silu")", "classifier_activation differs from hidden_activation");
  refused(R"(, "layer_types": ["sliding_attention"])", "layer_types is");
  refused(R"(, "num_attention_heads": 7)", "num_attention_heads is 7");
}

// GPT-2 as first published: tensor names without the prefix of the class, and a causal mask stored in every layer.
TEST(families, names_without_prefix_are_read_masks_ignored) {
  const Golden& g = golden("gpt2");
  const Folder folder;
  fs::create_directory(folder / "bare");
  fs::copy(g.folder / config_file_name, folder / "bare" / config_file_name);
  const safetensors::Reader from(g.folder / one_file_name);
  std::vector<safetensors::Tensor> bare = from.tensors();
  const std::string prefix = "transformer.";
  for (safetensors::Tensor& tensor : bare)
    if (tensor.name.starts_with(prefix)) tensor.name.erase(0, prefix.size());
  bare.push_back({"h.0.attn.bias", safetensors::Type::f32, {1, 1, 2, 2}});
  safetensors::Writer to(folder / "bare" / one_file_name, bare);
  for (const safetensors::Tensor& tensor : from.tensors()) {
    std::vector<std::byte> data(std::size_t(tensor.end - tensor.begin));
    from.read(tensor, full_box(tensor.shape), data.data(), tensor.shape, full_box(tensor.shape));
    to.write(data.data(), Index(data.size()));
  }
  to.write(std::vector<float>(4).data(), 16);
  to.commit();
  import_folder(folder / "bare", folder / "checkpoint", false, {});
  const auto silent = [](const std::string&) {};
  export_folder(folder / "checkpoint", folder / "same", {{}, Index(1) << 30, {}, false}, silent);
  EXPECT_TRUE(ModelFolder(folder / "same").has("wte.weight"));
  fs::remove_all(folder / "bare");
  export_folder(folder / "checkpoint", folder / "out", {{}, Index(1) << 30, {}, false}, silent);
  EXPECT_TRUE(contents(g.folder / one_file_name) == contents(folder / "out" / one_file_name));
}

// BERT as first published: LayerNorms have gamma and beta. Export uses these names while the imported folder exists, or
// if a similar folder is given. Otherwise it uses today's names.
TEST(families, gamma_and_beta_names_are_read_and_kept) {
  const Golden& g = golden("bert");
  const Folder folder;
  fs::create_directory(folder / "old");
  fs::copy(g.folder / config_file_name, folder / "old" / config_file_name);
  const safetensors::Reader from(g.folder / one_file_name);
  std::vector<safetensors::Tensor> tensors = from.tensors(), old = tensors;
  for (safetensors::Tensor& tensor : old)
    for (const auto& [now, then] : {std::pair<std::string, std::string>{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}})
      if (tensor.name.ends_with(now)) tensor.name.replace(tensor.name.size() - now.size(), now.size(), then);
  const auto sorted = [&](std::size_t a, std::size_t b) { return safetensors::precedes_in_file(old[a], old[b]); };
  std::vector<std::size_t> order(old.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), sorted);
  std::vector<safetensors::Tensor> written;
  for (const std::size_t i : order) written.push_back(old[i]);
  safetensors::Writer to(folder / "old" / one_file_name, written);
  for (const std::size_t i : order) {
    std::vector<std::byte> data(std::size_t(tensors[i].end - tensors[i].begin));
    from.read(tensors[i], full_box(tensors[i].shape), data.data(), tensors[i].shape, full_box(tensors[i].shape));
    to.write(data.data(), Index(data.size()));
  }
  to.commit();
  const auto silent = [](const std::string&) {};
  import_folder(folder / "old", folder / "checkpoint", false, silent);
  export_folder(folder / "checkpoint", folder / "then", {{}, Index(1) << 30, {}, false}, silent);
  EXPECT_TRUE(contents(folder / "old" / one_file_name) == contents(folder / "then" / one_file_name));
  fs::rename(folder / "old", folder / "elsewhere");
  export_folder(folder / "checkpoint", folder / "now", {{}, Index(1) << 30, {}, false}, silent);
  EXPECT_TRUE(contents(g.folder / one_file_name) == contents(folder / "now" / one_file_name));
  export_folder(folder / "checkpoint", folder / "like", {{}, Index(1) << 30, folder / "elsewhere", false}, silent);
  EXPECT_TRUE(contents(folder / "elsewhere" / one_file_name) == contents(folder / "like" / one_file_name));
}

// Copies a model folder. `change` modifies the values of each tensor.
template <class Change>
void copy_weights(const fs::path& from, const fs::path& to, const Change& change) {
  fs::create_directories(to);
  fs::copy_file(from / config_file_name, to / config_file_name);
  const ModelFolder folder(from);
  std::vector<safetensors::Tensor> tensors;
  for (const std::string& name : folder.names()) tensors.push_back(folder.tensor(name));
  std::sort(tensors.begin(), tensors.end(), safetensors::precedes_in_file);
  safetensors::Writer writer(to / one_file_name, tensors);
  for (const safetensors::Tensor& tensor : tensors) {
    std::vector<float> values(std::size_t(elements(tensor.shape)));
    folder.read(tensor.name, full_box(tensor.shape), values.data(), tensor.shape, full_box(tensor.shape));
    change(tensor.name, values);
    writer.write(values.data(), Index(values.size() * sizeof(float)));
  }
  writer.commit();
}

TEST(families, latent_attention_rope_scaling_is_read) {
  const auto read = [&](const char* more) {
    return parse_config_json(fmt::format(R"({{"model_type": "deepseek_v3", "max_position_embeddings": 96{}}})", more), "file").model.latent;
  };
  EXPECT_EQ(read(R"(, "rope_scaling": {"rope_type": "dynamic", "factor": 2})").rope_scaling.original_positions, 96);
  EXPECT_EQ(read(R"(, "rope_scaling": {"rope_type": "yarn", "factor": 2})").rope_scaling.original_positions, 96);
  EXPECT_EQ(read(R"(, "rope_scaling": {"rope_type": "yarn", "factor": 2, "mscale_all_dim": 0.5})").score_growth, 0.5);
  EXPECT_EQ(read(R"(, "rope_scaling": {"rope_type": "linear", "factor": 2},
                    "rope_parameters": {"rope_type": "yarn", "factor": 2, "mscale_all_dim": 0.5})")
                .score_growth,
            0);
}

TEST(families, deepseek_mtp_modules_exist_if_weights_do) {
  const HuggingFaceConfig parsed = read_config_json(golden("deepseek_v3_mtp").folder / config_file_name);
  ASSERT_NE(parsed.ahead, nullptr);
  EXPECT_EQ(parsed.model.objective, next_token());
  EXPECT_EQ(golden("deepseek_v3").model.objective, next_token()) << "its config.json asks for an MTP module, but the folder holds none";
  const ModelConfig& deep = golden("deepseek_v3_mtp_deep").model;
  EXPECT_EQ(deep.objective->depths(), 3);
  EXPECT_EQ(all_layers(deep), "L-LELELELE");
  EXPECT_STREQ(family_for(deep).model_type, "deepseek_v3");
  ModelConfig second = golden("llama").model;
  second.objective = multi_token({1, "*-"});
  EXPECT_NE(std::string(error_of([&] { family_for(second, "llama"); }).what()).find("train.objective is mtp"), std::string::npos);
  const StoredNames names(*find_family("deepseek_v3"), deep);
  for (const auto& [ours, theirs] : {std::pair{"mtp.0.enorm.weight", "model.layers.2.enorm.weight"},
                                     {"mtp.2.norm.weight", "model.layers.4.shared_head.norm.weight"},
                                     {"mtp.1.layers.0.input_layernorm.weight", "model.layers.3.input_layernorm.weight"},
                                     {"mtp.1.layers.1.input_layernorm.weight", "model.layers.3.post_attention_layernorm.weight"},
                                     {"mtp.1.layers.1.feed_forward.experts.4.up_proj.weight", "model.layers.3.mlp.experts.4.up_proj.weight"}})
    EXPECT_EQ(names.place(ours).name, theirs);
  EXPECT_EQ(names.copied("model.layers.3.embed_tokens.weight"), embedding_name);
  EXPECT_EQ(names.copied("model.layers.3.shared_head.head.weight"), embedding_name) << "a tied head is the embedding";
}

TEST(families, mtp_copies_must_match_unless_modules_are_dropped) {
  const Folder folder;
  const fs::path from = golden("deepseek_v3_mtp").folder;
  for (const std::string& copy : {std::string("model.layers.3.embed_tokens.weight"), std::string("model.layers.3.shared_head.head.weight")}) {
    copy_weights(from, folder / copy, [&](const std::string& name, std::vector<float>& values) { values.back() += name == copy ? 0.5f : 0; });
    const Error error = error_of([&] { FolderWeights(folder / copy, golden("deepseek_v3_mtp").model).check(0, 1); });
    EXPECT_EQ(error.code, Exit::config);
    for (const std::string& part : {copy, std::string("train.objective=next_token")})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    ModelConfig without_mtp = golden("deepseek_v3_mtp").model;
    without_mtp.objective = next_token();
    const FolderWeights weights(folder / copy, without_mtp);
    weights.check(0, 1);
    check_weights(weights, declared_weights(without_mtp));
  }
}

// The model read from a folder after its config.json has been changed.
template <class Change>
ModelConfig model_after(const fs::path& folder, const Change& change) {
  nlohmann::json config = nlohmann::json::parse(contents(folder / config_file_name));
  change(config);
  put_contents(folder / config_file_name, config.dump());
  return read_model_folder(folder).model;
}

// Only complete MTP modules may be left out. A layer after the last one that config.json asks for is a module or
// belongs to another model.
TEST(families, extra_layers_are_not_ignored_as_mtp_modules) {
  const Folder folder;
  for (const auto& [name, layers] : {std::pair{"deepseek_v3", 2}, {"deepseek_v3", 1}, {"deepseek_v3_mtp", 2}, {"deepseek_v3_mtp_deep", 1}}) {
    const fs::path copy = folder / fmt::format("{}_{}", name, layers);
    copy_weights(golden(name).folder, copy, [](const std::string&, std::vector<float>&) {});
    ModelConfig fewer = model_after(copy, [layers = layers](nlohmann::json& j) { j["num_hidden_layers"] = layers; });
    EXPECT_EQ(fewer.objective->depths(), 0) << name;
    const Error error = error_of([&] { check_weights(FolderWeights(copy, fewer), declared_weights(fewer)); });
    EXPECT_NE(std::string(error.what()).find(fmt::format("has weight model.layers.{}.", layers)), std::string::npos) << name << ": " << error.what();
  }
  EXPECT_FALSE(StoredNames(*find_family("deepseek_v3"), golden("deepseek_v3").model).is_ignored_tensor("model.layers.61.enorm.weight"));
  const auto ahead = [](const char* more) {
    const HuggingFaceConfig read = parse_config_json(fmt::format(R"({{"model_type": "deepseek_v3"{}}})", more), "file");
    return read.ahead ? read.ahead->depths() : 0;
  };
  EXPECT_EQ(ahead(""), 1) << "the published model has 61 layers and one MTP module";
  EXPECT_EQ(ahead(R"(, "num_nextn_predict_layers": 0)"), 0);
  EXPECT_EQ(ahead(R"(, "num_hidden_layers": 60)"), 0);
}

}  // namespace
}  // namespace gyr::testing::families_suite
