// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/config_reader.hpp"

#include <algorithm>
#include <cmath>

#include "modules/model/model_config.hpp"
#include "modules/objectives/classes.hpp"
#include "src/deck/yaml.hpp"

namespace gyr {

namespace {

constexpr Index most_positions = Index(1) << 40;
constexpr const char* word_for_infinity = "__float__";

// Keys that are ignored in all families: they have no effect on the model's function, or repeat other keys.
const std::set<std::string> harmless{"_attn_implementation",
                                     "_attn_implementation_autoset",
                                     "_commit_hash",
                                     "_name_or_path",
                                     "architectures",
                                     "attn_layer_indices",
                                     "expansion_factor",
                                     "id2label",
                                     "is_encoder_decoder",
                                     "label2id",
                                     "mamba_use_mlp",
                                     "mlp_expansion_factor",
                                     "num_logits_to_keep",
                                     "output_attentions",
                                     "output_hidden_states",
                                     "problem_type",
                                     "return_dict",
                                     "time_step_floor",
                                     "tokenizer_class",
                                     "torchscript",
                                     "transformers_version",
                                     "use_bfloat16",
                                     "use_cache"};

// Defaults for generation, which earlier versions of transformers wrote into config.json. They belong to
// generation_config.json and do not affect the model.
const std::set<std::string> generation{"bad_words_ids",
                                       "begin_suppress_tokens",
                                       "chunk_size_feed_forward",
                                       "decoder_start_token_id",
                                       "diversity_penalty",
                                       "do_sample",
                                       "early_stopping",
                                       "encoder_no_repeat_ngram_size",
                                       "exponential_decay_length_penalty",
                                       "forced_bos_token_id",
                                       "forced_eos_token_id",
                                       "length_penalty",
                                       "max_length",
                                       "max_new_tokens",
                                       "min_length",
                                       "min_new_tokens",
                                       "no_repeat_ngram_size",
                                       "num_beam_groups",
                                       "num_beams",
                                       "num_return_sequences",
                                       "output_scores",
                                       "prefix",
                                       "remove_invalid_values",
                                       "repetition_penalty",
                                       "return_dict_in_generate",
                                       "sep_token_id",
                                       "suppress_tokens",
                                       "task_specific_params",
                                       "temperature",
                                       "top_k",
                                       "top_p",
                                       "typical_p"};

}  // namespace

using json = ConfigReader::json;

std::string ConfigReader::text_of(const json& value) { return shown(value.dump(-1, ' ', true).substr(0, 60)); }

void ConfigReader::note_unknown_keys() {
  // Many classes of transformers let is_causal override the attention mask of the class.
  const bool causal = config.model.attention.causal;
  if (const json& is_causal = value("is_causal"); !is_causal.is_null())
    demand(is_causal == causal, "is_causal", "is {}; models of this class have {}", text_of(is_causal),
           causal ? "causal attention (true)" : "bidirectional attention (false)");
  constexpr std::size_t most = 8;
  std::vector<std::string> keys;
  for (const auto& [key, value] : file_.items())
    if (!value.is_null() && !known_.contains(key) && !harmless.contains(key) && !generation.contains(key)) keys.push_back(shown(key));
  if (keys.empty()) return;
  std::string list;
  for (std::size_t i = 0; i < std::min(most, keys.size()); ++i) list += fmt::format("{}`{}`", i ? ", " : "", keys[i]);
  if (keys.size() > most) list += fmt::format(" and {} more", keys.size() - most);
  note("unknown key{} {}: ignoring {}", keys.size() > 1 ? "s" : "", list, keys.size() > 1 ? "them" : "it");
}

const json& ConfigReader::value(const std::string& key) {
  static const json none;
  known_.insert(key);
  const auto found = file_.find(key);
  return found == file_.end() ? none : *found;
}

bool ConfigReader::given(const std::string& key) {
  known_.insert(key);
  return file_.contains(key);
}

void ConfigReader::carry(const std::string& key) {
  if (given(key)) config.carried[key] = value(key).dump();
}

void ConfigReader::second_name(const std::string& key, const std::string& name) {
  if (!given(key)) return;
  demand(given(name) && value(key) == value(name), key, "is {}, but it is another name of {}, which differs or is missing; write only the latter",
         text_of(value(key)), name);
}

Index ConfigReader::integer(const json& x, const std::string& key, Index least, Index most) const {
  demand(x.is_number_integer(), key, "is {}, which is not an integer", text_of(x));
  const bool fits = !x.is_number_unsigned() || x.get<std::uint64_t>() <= std::uint64_t(most);
  demand(fits && x.get<Index>() >= least && x.get<Index>() <= most, key, "is {}; it must be between {} and {}", text_of(x), least, most);
  return x.get<Index>();
}

bool ConfigReader::flag(const std::string& key, bool otherwise) {
  if (!given(key)) return otherwise;
  const json& x = value(key);
  demand(x.is_boolean(), key, "is {}, which is neither true nor false", text_of(x));
  return x.get<bool>();
}

double ConfigReader::number(const json& x, const std::string& key) const {
  if (x.is_number()) return x.get<double>();
  const bool spelled = x.is_object() && x.size() == 1 && x.contains(word_for_infinity) && x[word_for_infinity].is_string();
  const std::string word = spelled ? x[word_for_infinity].get<std::string>() : "";
  demand(word == "Infinity" || word == "-Infinity", key, "is {}, which is not a number", text_of(x));
  return word == "Infinity" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

double ConfigReader::finite(const json& x, const std::string& key) const {
  const double number = this->number(x, key);
  demand(std::isfinite(number), key, "is infinite; it must be finite");
  return number;
}

double ConfigReader::positive(const std::string& key, double otherwise) {
  const double number = finite(key, otherwise);
  demand(number > 0, key, "is {}; it must be above 0", number);
  return number;
}

double ConfigReader::not_negative(const std::string& key, double otherwise) {
  const double number = finite(key, otherwise);
  demand(number >= 0, key, "is negative");
  return number;
}

std::vector<double> ConfigReader::multipliers(const std::string& key, std::size_t count) {
  const json& x = value(key);
  if (x.is_null()) return std::vector<double>(count, 1);
  demand(x.is_array() && x.size() == count, key, "is {}, which is not a list of {} numbers", text_of(x), count);
  std::vector<double> list;
  for (const json& element : x) list.push_back(finite(element, key));
  return list;
}

std::string ConfigReader::text(const std::string& key, const std::string& otherwise) {
  const json& x = value(key);
  if (x.is_null()) return otherwise;
  demand(x.is_string(), key, "is {}, which is not a string", text_of(x));
  return x.get<std::string>();
}

void ConfigReader::silu(const std::string& key) {
  const std::string act = text(key, "silu");
  demand(act == "silu" || act == "swish", key, "is \"{}\"; only silu (or swish, the same) is supported", shown(act));
}

namespace {

constexpr std::pair<const char*, Activation> activations[] = {{"silu", Activation::silu},
                                                              {"swish", Activation::silu},
                                                              {"gelu", Activation::gelu},
                                                              {"gelu_new", Activation::gelu_tanh},
                                                              {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                                              {"relu2", Activation::relu2},
                                                              {"relu", Activation::relu},
                                                              {"tanh", Activation::tanh},
                                                              {"sigmoid", Activation::sigmoid},
                                                              {"quick_gelu", Activation::quick_gelu}};

}  // namespace

Activation ConfigReader::activation(const std::string& key, Activation otherwise) { return find_activation(text(key, name_of(otherwise)), key); }
Activation ConfigReader::find_activation(const std::string& act, const std::string& key) const {
  std::string names;
  for (const auto& [name, activation] : activations) {
    if (act == name) return activation;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  demand(false, key, "is \"{}\"; supported are {}", shown(act), names);
  return {};
}

const char* ConfigReader::name_of(Activation a) {
  for (const auto& [name, activation] : activations)
    if (a == activation) return name;
  return "";
}

std::vector<std::string> ConfigReader::classes() {
  const char* const key = "id2label";
  if (!given(key)) return numbered_classes(integer("num_labels", 2, 1, most_classes));
  const json &named = value(key), &count = value("num_labels");
  demand(named.is_object(), key, "is {}, which is not an object that maps class numbers to names", text_of(named));
  demand(Index(named.size()) <= most_classes, key, "has {} classes; the maximum is {}", named.size(), most_classes);
  demand(count.is_null() || count == named.size(), "num_labels", "is {}, but {} has {} classes", text_of(count), key, named.size());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < named.size(); ++i) {
    const auto name = named.find(fmt::format("{}", i));
    demand(name != named.end() && name->is_string(), key, "has no name for class {} of {}", i, named.size());
    names.push_back(name->get<std::string>());
  }
  return names;
}

void ConfigReader::read_widths(Index vocab_size, Index hidden_size, bool tied) {
  ModelConfig& m = config.model;
  m.vocab_size = integer("vocab_size", vocab_size, 2, most_tokens);
  m.hidden_size = size("hidden_size", hidden_size);
  m.init_std = not_negative("initializer_range", 0.02);
  m.tie_word_embeddings = flag("tie_word_embeddings", tied);
}

void ConfigReader::read_multi_head_attention(Index num_heads) {
  const Index width = config.model.hidden_size;
  AttentionConfig& a = config.model.attention;
  a.num_heads = a.num_kv_heads = size("num_attention_heads", num_heads);
  demand(width % a.num_heads == 0, "num_attention_heads", "is {}, which does not divide hidden_size {}", a.num_heads, width);
  a.head_dim = width / a.num_heads;
}

void ConfigReader::read_heads(Index num_heads, Index num_kv_heads) {
  AttentionConfig& a = config.model.attention;
  a.num_heads = size("num_attention_heads", num_heads);
  a.num_kv_heads = value("num_key_value_heads").is_null() && (given("num_key_value_heads") || !num_kv_heads)
                       ? a.num_heads
                       : size("num_key_value_heads", num_kv_heads);
  if (!value("head_dim").is_null()) {
    a.head_dim = size("head_dim", 0);
  } else {
    a.head_dim = config.model.hidden_size / a.num_heads;
    demand(a.head_dim > 0, "num_attention_heads", "is {}, more than hidden_size; set head_dim", a.num_heads);
  }
  demand(a.num_heads * a.head_dim <= widest, "num_attention_heads", "times head_dim is {}; the maximum is {}", a.num_heads * a.head_dim, widest);
}

namespace {

constexpr std::pair<const char*, RopeScaling::Type> rope_types[] = {{"default", RopeScaling::none},
                                                                    {"linear", RopeScaling::linear},
                                                                    {"llama3", RopeScaling::llama3},
                                                                    {"yarn", RopeScaling::yarn},
                                                                    {"dynamic", RopeScaling::dynamic}};

const char* name_of_type(RopeScaling::Type type) { return rope_types[type].first; }

// YaRN attention factor (scale of queries and keys) from DeepSeek's keys: m(mscale) / m(mscale_all_dim), where m(s) =
// 0.1 s ln(factor) + 1 for factor > 1, otherwise 1.
double attention_factor_from_mscale(double factor, double scale, double all) {
  const auto grown = [&](double by) { return factor > 1 ? 0.1 * by * std::log(factor) + 1 : 1; };
  return grown(scale) / grown(all);
}

bool has_kinds(const json& rope) { return rope.is_object() && (rope.contains(full_kind) || rope.contains(window_kind)); }

}  // namespace

// Reads one key of the RoPE scaling object; returns false if the key does not belong to this rope_type.
bool ConfigReader::read_scaling(const std::string& name, const json& x, const std::string& path) {
  RopeScaling& s = config.model.attention.rope_scaling;
  const bool yarn = s.type == RopeScaling::yarn, rescales = yarn || s.type == RopeScaling::llama3;
  if (name == "factor") {
    s.factor = finite(x, path);
    demand(s.factor >= 1, path, "is {}; it must be at least 1", s.factor);
  } else if (rescales && name == (yarn ? "beta_slow" : "low_freq_factor")) {
    s.low_freq_factor = finite(x, path);
  } else if (rescales && name == (yarn ? "beta_fast" : "high_freq_factor")) {
    s.high_freq_factor = finite(x, path);
  } else if (rescales && name == "original_max_position_embeddings") {
    s.original_positions = integer(x, path, 1, longest);
  } else if (yarn && name == "attention_factor") {
    if (x.is_null()) return true;
    s.attention_factor = finite(x, path);
    demand(s.attention_factor > 0, path, "is {}; it must be above 0", s.attention_factor);
  } else if (yarn && name == "truncate") {
    read_truncate(path, x);
  } else {
    return yarn && (name == "mscale" || name == "mscale_all_dim");
  }
  return true;
}

// With layer types, transformers 5.24 reads `truncate` only next to their objects in rope_parameters, not inside one and
// not in rope_scaling.
void ConfigReader::read_truncate(const std::string& path, const json& x) {
  demand(x.is_boolean(), path, "is {}, which is neither true nor false", text_of(x));
  bool applied = x.get<bool>();
  if (rotary_.by_kind) {
    const json& rope_parameters = value("rope_parameters");
    const auto read = rope_parameters.is_object() ? rope_parameters.find("truncate") : rope_parameters.end();
    applied = rope_parameters.is_object() && read != rope_parameters.end() ? *read == true : true;
  }
  config.model.attention.rope_scaling.truncate = applied;
  if (applied != x.get<bool>()) note("{} is {}: not applied, because transformers 5.24 reads only rope_parameters.truncate here", path, !applied);
}

// Reads mscale and mscale_all_dim. If either is 0, null or absent, the attention factor keeps its default.
void ConfigReader::read_scales(const std::string& key, const json& rope) {
  RopeScaling& s = config.model.attention.rope_scaling;
  std::vector<double> scales;
  for (const char* name : {"mscale", "mscale_all_dim"})
    if (const auto x = rope.find(name); x != rope.end() && !x->is_null()) scales.push_back(finite(*x, fmt::format("{}.{}", key, name)));
  if (scales.size() == 2 && scales[0] != 0 && scales[1] != 0) s.attention_factor = attention_factor_from_mscale(s.factor, scales[0], scales[1]);
}

void ConfigReader::read_rotary_object(const std::string& key, const json& rope, std::optional<double>& base) {
  demand(rope.is_object(), key, "is {}, which is not an object", text_of(rope));
  RopeScaling& scaling = config.model.attention.rope_scaling;
  const auto kind = rope.find(rope.contains("rope_type") ? "rope_type" : "type");
  for (const auto& [name, type] : rope_types)
    if (rotary_.stretched && kind != rope.end() && *kind == name) scaling.type = type;
  const auto check_type = [&](const std::string& name, const json& x) {
    demand(x == "default" || x == name_of_type(scaling.type), fmt::format("{}.{}", key, name), "is {}; supported rope_type: {}", text_of(x),
           rotary_.stretched ? "default, linear, llama3, yarn, dynamic" : "default");
  };
  if (kind != rope.end()) check_type(kind.key(), *kind);  // before the keys that only some types have
  if (scaling.type == RopeScaling::yarn) scaling.high_freq_factor = 32;
  demand(scaling.type == RopeScaling::none || rope.contains("factor"), fmt::format("{}.factor", key), "is missing; rope_type \"{}\" requires it",
         name_of_type(scaling.type));
  for (const auto& [name, x] : rope.items()) {
    const std::string path = fmt::format("{}.{}", key, shown(name));
    if (name == "rope_type" || name == "type") {
      check_type(name, x);
    } else if (name == "partial_rotary_factor") {
      read_partial(path, x);
    } else if (rotary_.sections && name.starts_with("mrope_")) {
      continue;
    } else if (name == "rope_theta") {
      const double inner = finite(x, path);
      demand(inner > 0, path, "is {}; it must be above 0", inner);
      if (base && inner != *base) note("rope_theta is {} but {} is {}; using the latter", *base, path, inner);
      base = inner;
    } else if (scaling.type == RopeScaling::none || !read_scaling(name, x, path)) {
      demand(x.is_null(), path, "is {}; this key is not supported with rope_type \"{}\"", text_of(x), name_of_type(scaling.type));
    }
  }
  if (scaling.type == RopeScaling::yarn && scaling.attention_factor == 0) read_scales(key, rope);
}

void ConfigReader::read_rotary_of_windows(const std::string& key, const json& rope) {
  demand(rope.is_object(), key, "is {}, which is not an object", text_of(rope));
  for (const auto& [name, x] : rope.items()) {
    const std::string path = fmt::format("{}.{}", key, shown(name));
    if (name == "rope_theta") {
      demand(finite(x, path) > 0, path, "is {}; it must be above 0", text_of(x));
      config.model.window.rope_theta = finite(x, path);
    } else {
      demand(x.is_null() || (name == "rope_type" && x == "default"), path, "is {}; sliding-window layers support only rope_type \"default\"",
             text_of(x));
    }
  }
}

void ConfigReader::read_partial(const std::string& key, const json& x) {
  demand(x.is_number() && (rotary_.partial || x == 1), key, "is {}; it must be 1: this model type does not support partial rotary embeddings",
         text_of(x));
  const double fraction = x.get<double>();
  demand(fraction >= 0 && fraction <= 1, key, "is {}; it must be between 0 and 1", fraction);
  config.model.attention.rotary_fraction = fraction;
}

// In models with layer_types, transformers expects one object per layer type in rope_parameters only, and rope_type
// (not type) in rope_scaling. It ignores everything else, which is an error here.
void ConfigReader::check_kinds(const std::string& key, const json& rope) const {
  const bool of_kinds = key == "rope_parameters";
  demand(rope.empty() || has_kinds(rope) == of_kinds, key, "is {}; RoPE settings per layer type must be {}", text_of(rope),
         of_kinds ? fmt::format("objects in it, named {} and {}", full_kind, window_kind) : "objects in rope_parameters");
  demand(of_kinds || rope.contains("rope_type") || !rope.contains("type"), key,
         "has the key \"type\", which transformers ignores here; write rope_type");
}

void ConfigReader::read_rotary_key(const std::string& key, std::optional<double>& base) {
  const json& rope = value(key);
  if (rope.is_null()) return;
  if (rotary_.by_kind) check_kinds(key, rope);
  if (!rotary_.by_kind || !has_kinds(rope)) return read_rotary_object(key, rope, base);
  for (const auto& [kind, of_kind] : rope.items()) {
    const std::string path = fmt::format("{}.{}", key, shown(kind));
    if (kind == "truncate" && rotary_.stretched) {
      read_truncate(path, of_kind);
      continue;
    }
    demand(kind == full_kind || kind == window_kind, path, "is not a layer type; the layer types are {} and {}", full_kind, window_kind);
    if (of_kind.is_null()) continue;
    if (kind == full_kind) read_rotary_object(path, of_kind, base);
    else read_rotary_of_windows(path, of_kind);
  }
}

void ConfigReader::read_rotary(std::optional<double> theta, const Rotary& supported) {
  rotary_ = supported;
  config.model.attention.rope_scaling.original_positions = 0;  // 0 means not given; read_tokens sets the default
  std::optional<double> base;
  if (!value("rope_theta").is_null()) base = positive("rope_theta", 0);
  // rope_scaling takes precedence over rope_parameters. If rope_parameters has one object per layer type, rope_scaling
  // replaces that of the full-attention layers only.
  const bool scaled = !value("rope_scaling").empty();
  const bool kinds = has_kinds(value("rope_parameters")) && supported.by_kind;
  if (!value("partial_rotary_factor").is_null()) read_partial("partial_rotary_factor", value("partial_rotary_factor"));
  if (!scaled || kinds) read_rotary_key("rope_parameters", base);
  if (scaled) read_rotary_key("rope_scaling", base);
  if (!base) base = theta;
  demand(base.has_value(), "rope_theta",
         "is missing, both at the top level and in rope_parameters; its default differs between versions of transformers, so it must be given");
  config.model.attention.rope_theta = *base;
  const RopeScaling& s = config.model.attention.rope_scaling;
  const bool yarn = s.type == RopeScaling::yarn;
  demand((s.type != RopeScaling::llama3 && !yarn) || (s.low_freq_factor > 0 && s.low_freq_factor < s.high_freq_factor),
         yarn ? "beta_slow" : "low_freq_factor", "is {} and {} is {}; the first must be above 0 and below the second", s.low_freq_factor,
         yarn ? "beta_fast" : "high_freq_factor", s.high_freq_factor);
}

void ConfigReader::read_time_step_limit(const std::string& key) {
  MambaConfig& m = config.model.mamba;
  const json& limit = value(key);
  if (limit.is_null()) return;
  demand(limit.is_array() && limit.size() == 2, key, "is {}, which is not a list of two numbers", text_of(limit));
  m.dt_low = number(limit[0], key), m.dt_high = number(limit[1], key);
  demand(m.dt_low <= m.dt_high, key, "is {}; the first number must not exceed the second", text_of(limit));
}

std::optional<Index> ConfigReader::token_or(const std::string& key, std::optional<Index> otherwise) {
  if (!given(key)) return otherwise;
  if (value(key).is_null()) return {};
  return token(value(key), key);
}

void ConfigReader::read_tokens(std::optional<Index> pad, std::optional<Index> begin, std::optional<Index> end, Index positions) {
  config.model.pad_token_id = std::int32_t(token_or("pad_token_id", pad).value_or(-1));
  config.begin_token = token_or("bos_token_id", begin);
  const json ends = value("eos_token_id");
  if (!given("eos_token_id")) {
    if (end && config.model.vocab_size > *end) config.end_tokens = {*end};
  } else if (ends.is_array()) {
    demand(ends.size() <= 1024, "eos_token_id", "lists {} tokens; the maximum is 1024", ends.size());
    for (const json& x : ends) config.end_tokens.push_back(token(x, "eos_token_id"));
  } else if (!ends.is_null()) {
    config.end_tokens = {token(ends, "eos_token_id")};
  }
  config.positions = integer("max_position_embeddings", positions, 1, most_positions);
  read_original_positions();
}

// Original context length of RoPE scaling (original_max_position_embeddings): from the top level, except with one
// object per layer type, or else from rope_parameters, or else max_position_embeddings. For rope_type dynamic it is
// always max_position_embeddings.
void ConfigReader::read_original_positions() {
  RopeScaling& rope = config.model.attention.rope_scaling;
  const char* const key = "original_max_position_embeddings";
  const bool rescales = rope.type == RopeScaling::llama3 || rope.type == RopeScaling::yarn;
  if (rescales && !rotary_.by_kind && !value(key).is_null()) rope.original_positions = integer(value(key), key, 1, longest);
  if (rope.type == RopeScaling::dynamic || (rescales && rope.original_positions == 0)) rope.original_positions = std::min(config.positions, longest);
  if (rope.original_positions == 0) rope.original_positions = RopeScaling{}.original_positions;
}

void ConfigReader::read_training() {
  const std::string old = text("torch_dtype", ""), now = text("dtype", old);
  config.dtype = now.starts_with("torch.") ? now.substr(6) : now;
  if (config.dtype == "auto") config.dtype.clear();
  const std::set<std::string> dtypes{"", "bfloat16", "float16", "float32", "float64"};
  demand(dtypes.contains(config.dtype), now == old ? "torch_dtype" : "dtype",
         "is \"{}\", which is not a supported dtype (bfloat16, float16, float32, float64)", shown(now));
  if (!value("attention_dropout").is_null()) config.model.dropout.attention = dropout("attention_dropout", 0);
}

double ConfigReader::dropout(const std::string& key, double otherwise) {
  const double p = finite(key, otherwise);
  demand(p >= 0 && p <= 0.99, key, "is {}; it must be between 0 and 0.99", p);
  return p;
}

HuggingFaceConfig ConfigReader::checked() {
  try {
    check(config.model);
  } catch (const Error& error) {
    fail(Exit::data, "{}: {}", origin_, error.what());
  }
  return std::move(config);
}

void write_widths(const ModelConfig& m, nlohmann::ordered_json& j) {
  j["vocab_size"] = m.vocab_size;
  j["hidden_size"] = m.hidden_size;
  j["initializer_range"] = m.init_std;
  j["tie_word_embeddings"] = m.tie_word_embeddings;
}

void write_classes(const ModelConfig& m, nlohmann::ordered_json& j) {
  const std::vector<std::string>& names = m.objective->classes();
  j["id2label"] = j["label2id"] = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < names.size(); ++i) j["id2label"][fmt::format("{}", i)] = names[i], j["label2id"][names[i]] = i;
}

void write_heads(const ModelConfig& m, nlohmann::ordered_json& j) {
  const AttentionConfig& a = m.attention;
  j["num_attention_heads"] = a.num_heads;
  j["num_key_value_heads"] = a.num_kv_heads;
  j["head_dim"] = a.head_dim;
  j["attention_dropout"] = m.dropout.attention;
}

void write_rotary(const AttentionConfig& a, nlohmann::ordered_json& j) {
  j["rope_theta"] = a.rope_theta;
  const RopeScaling& s = a.rope_scaling;
  nlohmann::ordered_json scaling{{"rope_type", name_of_type(s.type)}};
  const bool yarn = s.type == RopeScaling::yarn;
  if (s.type != RopeScaling::none) scaling["factor"] = s.factor;
  if (s.type == RopeScaling::llama3 || yarn) {
    scaling[yarn ? "beta_slow" : "low_freq_factor"] = s.low_freq_factor, scaling[yarn ? "beta_fast" : "high_freq_factor"] = s.high_freq_factor;
    scaling["original_max_position_embeddings"] = s.original_positions;
  }
  if (yarn && s.attention_factor > 0) scaling["attention_factor"] = s.attention_factor;
  if (s.type == RopeScaling::dynamic) j["max_position_embeddings"] = s.original_positions;  // dynamic NTK scaling starts beyond this length
  if (yarn && !s.truncate) scaling["truncate"] = false;
  j["rope_scaling"] = s.type == RopeScaling::none ? nlohmann::ordered_json(nullptr) : scaling;
  scaling["rope_theta"] = a.rope_theta;
  if (a.rotary_fraction != 1) scaling["partial_rotary_factor"] = a.rotary_fraction;
  j["rope_parameters"] = scaling;
}

void write_tokens(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const auto token = [](bool known, Index id) { return known ? nlohmann::ordered_json(id) : nlohmann::ordered_json(nullptr); };
  if (!j.contains("pad_token_id")) j["pad_token_id"] = token(c.model.pad_token_id >= 0, c.model.pad_token_id);
  j["bos_token_id"] = token(c.begin_token.has_value(), c.begin_token.value_or(0));
  j["eos_token_id"] = token(!c.end_tokens.empty(), c.end_tokens.empty() ? 0 : c.end_tokens[0]);
  if (c.end_tokens.size() > 1) j["eos_token_id"] = c.end_tokens;
}

nlohmann::ordered_json spelled(double x) {
  return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json{{word_for_infinity, x > 0 ? "Infinity" : "-Infinity"}};
}

}  // namespace gyr
