// SPDX-License-Identifier: BSD-3-Clause
#include "modules/model/model_config.hpp"

#include <charconv>

#include "modules/model/layer.hpp"
#include "modules/settings/hybrid_pattern.hpp"

namespace gyr {

namespace {

void divides(Index part, Index total, const char* what) {
  require(part > 0 && total % part == 0, Exit::config, "model: {} ({} does not divide {})", what, part, total);
}

void check_heads(const AttentionConfig& c) {
  divides(c.num_kv_heads, c.num_heads, "attention.num_kv_heads must divide attention.num_heads");
  require(c.rotary_dim() % 2 == 0, Exit::config,
          "model.attention.head_dim: rotary positions need an even head_dim, or an even rotary_fraction of it: {} of {} is {}", c.rotary_fraction,
          c.head_dim, c.rotary_dim());
}

// An encoder is bidirectional, and layers that read its output come after it.
void check_encoder(const ModelConfig& c) {
  const auto end = c.pattern.find(encoder_end), reader = find_layer(c.pattern, attends(AttentionKind::cross));
  if (end == std::string::npos) {
    require(reader == std::string::npos, Exit::config,
            "model.pattern: X at {} attends to the output of an encoder, but no encoder ends before it; put the encoder's layers and > in front",
            reader + 1);
    return;
  }
  require(c.pattern.find(encoder_end, end + 1) == std::string::npos && end > 0 && end + 1 < c.pattern.size(), Exit::config,
          "model.pattern: > ends the encoder and must occur once, after the encoder's layers and before the decoder's");
  const auto other = find_layer(c.pattern.substr(0, end), [](const LayerTraits& t) { return !t.in_encoder; });
  require(other == std::string::npos, Exit::config, "model.pattern: layer {} of the encoder is '{}'; an encoder has layers *, - and B", other + 1,
          c.pattern[other == std::string::npos ? 0 : other]);
  require(c.norm_placement != NormPlacement::after && !c.embed_norm, Exit::config,
          "model.{}: an encoder (layer > of model.pattern) ends with a norm of its own; take norm_placement: before, both or output, and embed_norm: "
          "false",
          c.embed_norm ? "embed_norm" : "norm_placement = after");
  require(c.attention.causal, Exit::config,
          "model.attention.causal = false: layers after an encoder are causal (the encoder itself never is); set it to true");
  require(c.decoder_start_token_id < c.vocab_size, Exit::config, "model.decoder_start_token_id = {} is none of the {} tokens of model.vocab_size",
          c.decoder_start_token_id, c.vocab_size);
}

// Layers R read neighbours of the chunks of a causal text, in a decoder without an encoder of its own.
void check_retrieval(const ModelConfig& c) {
  const Span reading = retrieval_layers(c);
  if (reading.size() == 0) return;
  const std::string place = fmt::format("model.pattern: layer {} is R, which reads neighbours (retrieval)", reading.first + 1);
  require(!has_encoder(c), Exit::config, "{}, and > ends an encoder; leave one of them out", place);
  require(c.attention.causal, Exit::config, "{}, and model.attention.causal is false; set it to true, or leave out R", place);
  require(c.attention.relative_bias.buckets == 0, Exit::config, "{}, without a relative position bias; set model.attention.relative_bias.buckets: 0",
          place);
  require(c.attention.rotary_sections.count == 1 && !c.has_dynamic_rope(), Exit::config,
          "{}, whose positions have one component and a fixed RoPE; take another rope_scaling.type than dynamic, or leave out R", place);
  require(!c.dropout.any(), Exit::config, "{}, and does not support model.dropout; set its probabilities to 0", place);
  require((c.norm_placement == NormPlacement::before || c.norm_placement == NormPlacement::both) && !c.embed_norm, Exit::config,
          "{}, and needs a norm in front of its branches; take norm_placement: before or both, and embed_norm: false", place);
  require(c.positions == 0 || c.retrieval.neighbour_length() <= c.positions, Exit::config,
          "model.positions = {}: a neighbour has 2 model.retrieval.chunk = {} positions; set it to {} or more", c.positions,
          c.retrieval.neighbour_length(), c.retrieval.neighbour_length());
  const std::string& encoder = c.retrieval.encoder;
  const auto other = encoder.find_first_not_of("*X-");
  require(other == std::string::npos && encoder.find('X') != std::string::npos, Exit::config,
          "model.retrieval.encoder = \"{}\": the encoder of neighbours has layers *, X and -, and at least one X, which reads the chunk", encoder);
  check_heads(encoder_config(c).attention);
}

// A tower reads images for a causal text without norm or dropout on its embedding.
void check_tower(const ModelConfig& c) {
  if (!reads_images(c)) return;
  const std::size_t end = c.pattern.find(tower_end);
  require(end > 0 && end + 1 < c.pattern.size() && c.pattern.find(tower_end, end + 1) == std::string::npos, Exit::config,
          "model.pattern: V ends the vision tower and must occur once, after the tower's layers and before those of the text");
  const std::string place = fmt::format("model.pattern: V at {} ends a vision tower", end + 1);
  const std::string tower = c.pattern.substr(0, end);
  const std::size_t other = tower.find_first_not_of("*-");
  require(other == std::string::npos, Exit::config, "{}, and layer {} is '{}'; a tower has layers * and -", place, other + 1,
          tower[other == std::string::npos ? 0 : other]);
  require(c.pattern.find(encoder_end) == std::string::npos && !reads_neighbours(c), Exit::config,
          "{}; encoders of text (> and R) cannot be combined with it; leave them out", place);
  require(c.attention.causal, Exit::config, "{} for a causal text, and model.attention.causal is false; set it to true", place);
  require(!c.has_embed_norm() && c.attention.relative_bias.buckets == 0, Exit::config,
          "{}; the text needs norms in front of branches and no relative position bias; take norm_placement: before or both, embed_norm: false and "
          "relative_bias.buckets: 0",
          place);
  require(c.dropout.embedding == 0, Exit::config, "{}, and model.dropout.embedding = {} would not apply to its rows; set it to 0", place,
          c.dropout.embedding);
  require(c.attention.rotary_sections.count == 1, Exit::config, "{}, whose rows have one position; leave out position components (M-RoPE)", place);
  const VisionConfig& v = c.vision;
  divides(v.num_heads, v.hidden_size, "vision.num_heads must divide vision.hidden_size");
  divides(v.patch_size, v.image_size, "vision.patch_size must divide vision.image_size");
  require(v.activation != Activation::clamped_swiglu && v.projector_activation != Activation::clamped_swiglu, Exit::config,
          "model.vision: clamped_swiglu needs a gate, which neither tower nor projector has; take another activation");
  require(v.rows_in_text() > 0, Exit::config, "model.vision.image_size = {}: its only row is dropped; take a larger image, or drop_first_row: false",
          v.image_size);
  require(v.image_token < c.vocab_size, Exit::config, "model.vision.image_token = {} is none of the {} tokens of model.vocab_size", v.image_token,
          c.vocab_size);
}

void check_relative_bias(const ModelConfig& c) {
  const RelativeBiasConfig &r = c.attention.relative_bias, &of_encoder = c.encoder ? c.encoder->attention.relative_bias : r;
  require(of_encoder.buckets == r.buckets && (r.buckets == 0 || !c.encoder || c.encoder->attention.num_heads == c.attention.num_heads), Exit::config,
          "model.attention.relative_bias: encoder and decoder need as many buckets ({} and {}) and heads ({} and {}); set buckets: 0, or the same "
          "numbers",
          of_encoder.buckets, r.buckets, encoder_config(c).attention.num_heads, c.attention.num_heads);
  if (r.buckets == 0) return;
  require(r.buckets >= 4 && r.buckets % 2 == 0, Exit::config, "model.attention.relative_bias.buckets = {}: take an even number, 4 or more",
          r.buckets);
  require(r.max_distance > r.buckets / 2, Exit::config,
          "model.attention.relative_bias.max_distance = {}: the first {} distances have a bucket each; take a larger value", r.max_distance,
          r.buckets / 2);
  require(c.attention.soft_cap == 0, Exit::config,
          "model.attention.soft_cap: a soft cap cannot be combined with relative_bias; leave one of them out");
  require(!has_layer(c.pattern, &LayerTraits::without_mixers), Exit::config,
          "model.attention.relative_bias: hybrid layers (P of model.pattern) do not support it; take * and M instead, or set buckets: 0");
}

void check_linear(const ModelConfig& c) {
  if (c.linear == LinearLayers::full) return;
  const auto other = find_layer(c.pattern, [](const LayerTraits& t) { return !t.ternary; });
  std::string able;
  for (const LayerType& type : layer_types())
    if (type.traits.ternary) able += fmt::format("{}{}", able.empty() ? "" : ", ", type.symbol);
  require(other == std::string::npos, Exit::config,
          "model.linear = ternary: layer {} of model.pattern is '{}', whose linear layers cannot be ternary; take layers {}, or set linear: full",
          other + 1, c.pattern[other == std::string::npos ? 0 : other], able);
}

}  // namespace

VisionConfig vision_defaults(VisionTower tower) {
  VisionConfig v;
  if (tower == VisionTower::clip) return v;
  v.tower = tower;
  v.hidden_size = 1152, v.intermediate_size = 4304, v.image_size = 384;
  v.activation = Activation::gelu_tanh, v.norm_eps = 1e-6, v.drops_first_row = false;
  v.pixels = {{.5, .5, .5}, {.5, .5, .5}};
  return v;
}

void check(const ModelConfig& c) {
  require(!c.pattern.empty(), Exit::config, "model.pattern: there must be at least one layer");
  for (const char symbol : c.pattern) layer_type(symbol);
  for (const Stack& stack : stacks_of(c)) check_heads(stack.config.attention);
  require(c.latent.rope_dim % 2 == 0, Exit::config, "model.latent.rope_dim: RoPE rotates pairs of channels, but {} is odd", c.latent.rope_dim);
  check_encoder(c);
  check_retrieval(c);
  check_tower(c);
  check_relative_bias(c);
  check_linear(c);
  require(c.mlp.gated || c.mlp.activation != Activation::clamped_swiglu, Exit::config,
          "model.mlp.activation = clamped_swiglu: it needs a gate, but model.mlp.gated is false; set it to true, or take another activation");
  require(c.moe.gated || c.moe.activation != Activation::clamped_swiglu, Exit::config,
          "model.moe.activation = clamped_swiglu: it needs a gate, but model.moe.gated is false; set it to true, or take another activation");
  require(c.moe.gated || !c.moe.expert_bias, Exit::config,
          "model.moe.expert_bias: experts without a gate (model.moe.gated = false) have no biases; set one of the two to its default");
  require(c.norm == NormType::rms || c.norm_offset == 0, Exit::config,
          "model.norm_offset: {} is added to the weights of RMSNorms, but model.norm is not rms; set model.norm: rms, or leave the offset out",
          c.norm_offset);
  require(!c.embed_norm || c.norm_placement == NormPlacement::before, Exit::config,
          "model.embed_norm: the first norm moves to the embedding only if norms are placed before branches; set model.norm_placement: before, or "
          "set embed_norm: false");
  const RopeScaling& rope = c.attention.rope_scaling;
  require((rope.type != RopeScaling::llama3 && rope.type != RopeScaling::yarn) || rope.low_freq_factor < rope.high_freq_factor, Exit::config,
          "model.attention.rope.low_freq_factor: {} must be below high_freq_factor {}", rope.low_freq_factor, rope.high_freq_factor);
  const Routing& r = c.moe.routing;
  divides(r.groups, c.moe.experts, "moe.groups must divide moe.experts");
  require(c.moe.bias || c.moe.bias_update_rate == 0, Exit::config,
          "model.moe.bias_update_rate = {}: there is no bias to move; set model.moe.bias: true, or leave the rate out", c.moe.bias_update_rate);
  require(r.top_groups <= r.groups, Exit::config, "model.moe.top_groups: {} is more than groups {}", r.top_groups, r.groups);
  require(r.top_k <= c.moe.experts / r.groups * r.top_groups, Exit::config,
          "model.moe.top_k: {} experts cannot be chosen from {} of {} groups of {}; lower top_k, or raise top_groups", r.top_k, r.top_groups,
          r.groups, c.moe.experts / r.groups);
  require(r.score == Routing::softmax || c.moe.z_loss == 0, Exit::config,
          "model.moe.z_loss: the z-loss needs softmax scores, but model.moe.score is sigmoid; set z_loss: 0, or score: softmax");
  divides(c.mamba.num_groups, c.mamba.num_heads, "mamba.num_groups must divide mamba.num_heads");
  require(!c.attention.output_gate || !(c.attention.bias || c.attention.qkv_bias), Exit::config,
          "model.attention.output_gate: gate_proj has no bias, but attention.bias or qkv_bias is true; set them to false, or leave the gate out");
  require(
      !c.attention.qk_norm_all_heads || (c.attention.qk_norm && c.norm_offset == 0), Exit::config,
      "model.attention.qk_norm_all_heads: it is a kind of qk_norm, and has weights without an offset; set qk_norm: true and norm_offset: 0, or leave "
      "it out");
  divides(c.delta.num_key_heads, c.delta.num_heads, "delta.num_key_heads must divide delta.num_heads");
  require(!c.moe.shared_gate || c.moe.shared_intermediate_size > 0, Exit::config,
          "model.moe.shared_gate: there is no shared expert to gate; set moe.shared_intermediate_size, or leave shared_gate out");
  require(c.mamba.dt_low <= c.mamba.dt_high, Exit::config, "model.mamba.dt_limit: minimum {} is above maximum {}", c.mamba.dt_low, c.mamba.dt_high);
}

namespace {

// Reads model.pattern: "PP*-" or, for long models, "P x 72".
std::string read_pattern(Section& s, const std::string& otherwise, const std::string& help) {
  auto setting = s.get("pattern", otherwise, help).not_empty();
  const std::string pattern = setting;
  const auto x = pattern.find(" x ");
  const std::string symbols = pattern.substr(0, x);
  Index count = 1;
  if (x != std::string::npos) {
    const char *begin = pattern.data() + x + 3, *end = pattern.data() + pattern.size();
    const auto [rest, error] = std::from_chars(begin, end, count);
    setting.must("COUNT is a whole number above 0", begin != end && rest == end && error != std::errc::invalid_argument && count > 0);
    if (error == std::errc::result_out_of_range) count = most_layers + 1;
  }
  setting.must(fmt::format("at most {} layers", most_layers), count <= most_layers && count * Index(symbols.size()) <= most_layers).value();
  std::string all;
  for (Index i = 0; i < count; ++i) all += symbols;
  return all;
}

// The inverse of read_pattern: "P x 72" if all layers are of one type.
std::string contract_pattern(const std::string& pattern) {
  const bool alike = pattern.size() > 1 && pattern.find_first_not_of(pattern[0]) == std::string::npos;
  return alike ? fmt::format("{} x {}", pattern[0], pattern.size()) : pattern;
}

std::string pattern_help() {
  std::string text = "one symbol per layer, or 'SYMBOLS x COUNT':";
  for (const LayerType& type : layer_types()) text += fmt::format(" {} {};", type.symbol, type.help);
  text.pop_back();
  return text;
}

// Pattern that is generated from model.layers and the ratios; empty without model.layers. A resumed run compares only
// the pattern.
std::string read_hybrid_pattern(Section& s) {
  const Index layers =
      s.get("layers", 0, "number of layers of a pattern generated from M, * and -, instead of model.pattern; 0: no generated pattern")
          .at_least(0)
          .at_most(most_layers)
          .effect(Effect::none);
  const auto ratio = [&](const char* key, const char* help) -> double { return s.get(key, 0.0, help).at_least(0).at_most(1).effect(Effect::none); };
  const double attention = ratio("attention_ratio", "fraction of attention layers (*) in model.layers (Megatron: --hybrid-attention-ratio)");
  const double mlp = ratio("mlp_ratio", "fraction of MLP layers (-) in model.layers (Megatron: --hybrid-mlp-ratio)");
  if (layers > 0) return hybrid_pattern(layers, attention, mlp);
  require(attention == 0 && mlp == 0, Exit::config,
          "{}: the ratios are fractions of model.layers, which is 0; give model.layers, or leave the ratios out",
          s.settings_text({"attention_ratio", "mlp_ratio"}));
  return "";
}

void read_dropout(Section& s, DropoutConfig& c) {
  const auto fraction = [&](const char* key, double& p, const char* help) {
    p = s.get(key, p, help).at_least(0).at_most(0.99).effect(Effect::course);
  };
  fraction("embedding", c.embedding, "dropout probability of the embedding output (embd_pdrop)");
  fraction("residual", c.residual,
           "dropout probability of what a layer's branches add to the residual stream (resid_pdrop; Megatron: --hidden-dropout)");
  fraction("attention", c.attention, "dropout probability of the attention weights (attention_dropout; Megatron: --attention-dropout)");
  fraction("head", c.head, "dropout probability of the classifier's input (classifier_dropout)");
}

// Key that is null as long as the encoder follows the model; `own`: value of an encoder with a configuration of its own.
template <class T>
auto own_value(Section& s, std::string_view key, const T* own, std::string_view help) {
  return s.get(key, own ? std::optional<T>(*own) : std::nullopt, help);
}

// Configuration of the layers before the symbol >, as far as it differs from that of the model `c`.
std::optional<StackConfig> read_encoder(Section& s, const ModelConfig& c) {
  const StackConfig* own = c.encoder ? &*c.encoder : nullptr;
  StackConfig e = own ? *own : StackConfig{c.hidden_size, c.norm, c.rms_norm_eps, c.attention, c.mlp};
  bool differs = false;
  const auto take = [&](auto& field, const auto& value) {
    if (value) field = *value, differs = true;
  };
  const auto size = [&](Section& in, const char* key, Index& field, const char* help) {
    const std::optional<Index> value = own_value(in, key, own ? &field : nullptr, help).positive().at_most(widest);
    take(field, value);
  };
  size(s, "hidden_size", e.hidden_size, "channels of the encoder's residual stream; with another width than the text, it has its own embedding");
  static const std::vector<std::string> norms{"rms", "layer", "layer_no_bias"};
  const std::optional<std::string> norm =
      own_value(s, "norm", own ? &norms.at(std::size_t(own->norm)) : nullptr, "norm type of the encoder's layers").one_of(norms);
  if (norm) e.norm = NormType(std::find(norms.begin(), norms.end(), *norm) - norms.begin()), differs = true;
  const std::optional<double> eps = own_value(s, "rms_norm_eps", own ? &e.rms_norm_eps : nullptr, "epsilon of the encoder's norms").at_least(0);
  take(e.rms_norm_eps, eps);
  Section& attention = s.section("attention", "attention of the encoder; the other settings are those of model.attention");
  size(attention, "num_heads", e.attention.num_heads, "query heads");
  size(attention, "num_kv_heads", e.attention.num_kv_heads, "key/value heads");
  size(attention, "head_dim", e.attention.head_dim, "channels per head");
  Section& mlp = s.section("mlp", "MLP of the encoder; the other settings are those of model.mlp");
  size(mlp, "intermediate_size", e.mlp.intermediate_size, "inner channels");
  return differs ? std::optional(e) : std::nullopt;
}

// Settings of the layer types, and those of the encoder where they differ.
void read_layers(Section& s, ModelConfig& c) {
  for (const LayerSection& section : layer_sections()) section.read(s.section(section.name, section.help), c);
  c.encoder = read_encoder(
      s.section("encoder", "encoder before the symbol > of model.pattern, or of the neighbours of layers R, where it differs; null: as in the model"),
      c);
}

LinearLayers read_linear(Section& s, LinearLayers fallback) {
  return get_word(s, "linear", fallback, {"full", "ternary"},
                  "linear layers of attention, SSM and MLP; ternary: with weights of -1, 0 and 1 times a scale, and int8 activations, both "
                  "quantized in every forward (BitNet b1.58); not head, router and embedding");
}

}  // namespace

ModelConfig read_model_config(Section& s, const ModelConfig& d) {
  ModelConfig c = d;
  const std::string generated = read_hybrid_pattern(s);
  c.pattern = read_pattern(s, contract_pattern(generated.empty() ? d.pattern : generated), pattern_help());
  require(
      generated.empty() || c.pattern == generated, Exit::config,
      "{}: model.pattern differs from the pattern that model.layers and the ratios generate; leave out model.pattern, or model.layers and the ratios",
      s.settings_text({"pattern", "layers", "attention_ratio", "mlp_ratio"}));
  c.vocab_size = s.get("vocab_size", d.vocab_size, "tokens of the vocabulary").at_least(2).at_most(most_tokens);
  c.hidden_size = s.get("hidden_size", d.hidden_size, "channels of the residual stream").positive().at_most(widest);
  c.positions = s.get("positions", d.positions, "learned absolute positions, added to the embedding (max_position_embeddings); 0: none")
                    .at_least(0)
                    .at_most(longest);
  c.type_vocab_size =
      s.get("type_vocab_size", d.type_vocab_size,
            "token types (token_type_ids), added to the embedding; all tokens have type 0 except with train.mlm.sentence_order; 0: none")
          .at_least(0)
          .at_most(widest);
  c.norm = get_word(s, "norm", d.norm, {"rms", "layer", "layer_no_bias"},
                    "norm type of all layers and the head: RMSNorm, or LayerNorm with or without a bias");
  c.norm_placement = get_word(s, "norm_placement", d.norm_placement, {"before", "after", "both", "output"},
                              "position of the norms: before every branch and the head (pre-norm); after the embedding and every residual sum "
                              "(post-norm, BERT); both: before, and also on each branch's output (Gemma 2); output: on each branch's output, and "
                              "before the head (OLMo 2)");
  c.embed_norm = s.get(
      "embed_norm", d.embed_norm,
      "the first norm is applied to the embedding output; the first layer's branches then read the residual stream without a norm (ModernBERT)");
  c.norm_offset =
      s.get("norm_offset", d.norm_offset,
            "added to RMSNorm weights before they multiply, those of the q and k norms included; 1 for Gemma (Megatron: --apply-layernorm-1p)")
          .at_least(0)
          .at_most(1);
  c.rms_norm_eps =
      s.get("rms_norm_eps", d.rms_norm_eps, "epsilon of every norm, added to the mean square or, in a LayerNorm, to the variance (layer_norm_eps)")
          .at_least(0);
  c.tie_word_embeddings = s.get("tie_word_embeddings", d.tie_word_embeddings, "the output head shares the embedding matrix, if it predicts tokens");
  c.embedding_multiplier = s.get("embedding_multiplier", d.embedding_multiplier, "factor on the embedding");
  c.lm_head_multiplier = s.get("lm_head_multiplier", d.lm_head_multiplier, "factor on the logits");
  c.lm_head_soft_cap =
      s.get("lm_head_soft_cap", d.lm_head_soft_cap, "soft cap of the logits (final_logit_softcapping): soft_cap tanh(logit / soft_cap); 0: no cap")
          .at_least(0)
          .finite();
  c.linear = read_linear(s, d.linear);
  c.init_std = s.get("init_std", d.init_std, "standard deviation of initial weight matrices (initializer_range; Megatron: --init-method-std)")
                   .at_least(0)
                   .at_most(1000)
                   .effect(Effect::none);
  c.pad_token_id = s.get("pad_token_id", d.pad_token_id, "padding token, whose embedding gets no gradient; -1: none")
                       .at_least(-1)
                       .at_most(most_tokens)
                       .effect(Effect::course);
  c.decoder_start_token_id =
      s.get("decoder_start_token_id", d.decoder_start_token_id, "first token of the decoder input in a model with an encoder (layer >)")
          .at_least(0)
          .at_most(most_tokens);
  read_dropout(s.section("dropout", "dropout probabilities in training, drawn by seed, step and sample; 0: no dropout"), c.dropout);
  read_layers(s, c);
  check(c);
  return c;
}

}  // namespace gyr
