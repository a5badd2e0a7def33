// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/config_json.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "modules/model_config.hpp"
#include "src/deck/yaml.hpp"
#include "src/huggingface/json.hpp"

namespace gyr {

namespace {

using json = nlohmann::json;

constexpr std::size_t largest_file = std::size_t(1) << 20;
constexpr Index most_positions = Index(1) << 40;
constexpr const char* word_for_infinity = "__float__";

// Keys that say nothing about the function of the model, or repeat what other keys say.
const std::set<std::string> harmless{"_attn_implementation", "_attn_implementation_autoset",
                                     "_commit_hash",         "_name_or_path",
                                     "architectures",        "attn_layer_indices",
                                     "expansion_factor",     "id2label",
                                     "is_encoder_decoder",   "label2id",
                                     "mamba_use_mlp",        "mlp_expansion_factor",
                                     "num_logits_to_keep",   "output_attentions",
                                     "output_hidden_states", "problem_type",
                                     "return_dict",          "sliding_window",
                                     "time_step_floor",      "tokenizer_class",
                                     "torchscript",          "transformers_version",
                                     "use_bfloat16",         "use_cache"};

// Defaults for generation, which earlier versions wrote among the rest; they belong to generation_config.json and say nothing of the model.
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

class Reader {
 public:
  Reader(const json& file, const std::string& origin) : file_(file), origin_(origin) {}

  HuggingFaceConfig read() {
    check_kind();
    read_shape();
    read_attention();
    read_mamba();
    read_mlp();
    read_rotary();
    read_tokens();
    read_training();
    note_unknown_keys();
    try {
      check(c_.model);
    } catch (const Error& error) {
      fail(Exit::data, "{}: {}", origin_, error.what());
    }
    return std::move(c_);
  }

 private:
  template <class... Args>
  void demand(bool condition, const std::string& key, fmt::format_string<Args...> text, Args&&... args) const {
    if (!condition) fail(Exit::data, "{}: {} {}", origin_, key, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void note(fmt::format_string<Args...> text, Args&&... args) {
    c_.notes.push_back(fmt::format("{}: {}", origin_, fmt::format(text, std::forward<Args>(args)...)));
  }
  static std::string text_of(const json& value) { return shown(value.dump(-1, ' ', true).substr(0, 60)); }

  void note_unknown_keys() {
    constexpr std::size_t most = 8;
    std::vector<std::string> keys;
    for (const auto& [key, value] : file_.items())
      if (!known_.contains(key) && !harmless.contains(key) && !generation.contains(key)) keys.push_back(shown(key));
    if (keys.empty()) return;
    std::string list;
    for (std::size_t i = 0; i < std::min(most, keys.size()); ++i) list += fmt::format("{}`{}`", i ? ", " : "", keys[i]);
    if (keys.size() > most) list += fmt::format(" and {} more", keys.size() - most);
    note("does not know the key{} {}, and passes over {}", keys.size() > 1 ? "s" : "", list, keys.size() > 1 ? "them" : "it");
  }

  // The key's value; null where it is null or not there.
  const json& value(const std::string& key) {
    static const json none;
    known_.insert(key);
    const auto found = file_.find(key);
    return found == file_.end() ? none : *found;
  }
  bool given(const std::string& key) {
    known_.insert(key);
    return file_.contains(key);
  }

  Index integer(const json& x, const std::string& key, Index least, Index most) const {
    demand(x.is_number_integer(), key, "is {}, not a whole number", text_of(x));
    const bool fits = !x.is_number_unsigned() || x.get<std::uint64_t>() <= std::uint64_t(most);
    demand(fits && x.get<Index>() >= least && x.get<Index>() <= most, key, "is {}; it must be from {} to {}", text_of(x), least, most);
    return x.get<Index>();
  }
  Index integer(const std::string& key, Index otherwise, Index least, Index most) {
    return given(key) ? integer(value(key), key, least, most) : otherwise;
  }
  Index size(const std::string& key, Index otherwise) { return integer(key, otherwise, 1, widest); }

  bool flag(const std::string& key, bool otherwise) {
    if (!given(key)) return otherwise;
    const json& x = value(key);
    demand(x.is_boolean(), key, "is {}, not true or false", text_of(x));
    return x.get<bool>();
  }

  // A finite number, or an infinite one where the file spells it.
  double number(const json& x, const std::string& key) const {
    if (x.is_number()) return x.get<double>();
    const bool spelled = x.is_object() && x.size() == 1 && x.contains(word_for_infinity) && x[word_for_infinity].is_string();
    const std::string word = spelled ? x[word_for_infinity].get<std::string>() : "";
    demand(word == "Infinity" || word == "-Infinity", key, "is {}, not a number", text_of(x));
    return word == "Infinity" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  }
  double finite(const json& x, const std::string& key) const {
    const double number = this->number(x, key);
    demand(std::isfinite(number), key, "is infinite");
    return number;
  }
  double finite(const std::string& key, double otherwise) { return given(key) ? finite(value(key), key) : otherwise; }
  double positive(const std::string& key, double otherwise) {
    const double number = finite(key, otherwise);
    demand(number > 0, key, "is {}; it must be above 0", number);
    return number;
  }
  // A list of `count` finite numbers; ones where the key is null or not there.
  std::vector<double> multipliers(const std::string& key, std::size_t count) {
    const json& x = value(key);
    if (x.is_null()) return std::vector<double>(count, 1);
    demand(x.is_array() && x.size() == count, key, "is {}, not a list of {} numbers", text_of(x), count);
    std::vector<double> list;
    for (const json& element : x) list.push_back(finite(element, key));
    return list;
  }
  std::string text(const std::string& key, const std::string& otherwise) {
    const json& x = value(key);
    if (x.is_null()) return otherwise;
    demand(x.is_string(), key, "is {}, not a text", text_of(x));
    return x.get<std::string>();
  }

  void check_kind() {
    demand(given("model_type"), "model_type", "is missing: this is no config.json of a model");
    demand(value("model_type") == "falcon_h1", "model_type", "is {}; only \"falcon_h1\" is supported", text_of(value("model_type")));
    for (const char* key : {"quantization_config", "compression_config"})
      demand(value(key).is_null(), key, "is set: quantized weights are not supported; use the model they were made from");
  }

  void read_shape() {
    ModelConfig& m = c_.model;
    m.vocab_size = integer("vocab_size", 128000, 2, most_tokens);
    m.hidden_size = size("hidden_size", 4096);
    m.pattern.assign(std::size_t(integer("num_hidden_layers", 32, 1, most_layers)), 'P');
    for (const char* key : {"layer_types", "layers_block_type"}) {
      const json& kinds = value(key);
      const bool hybrid = kinds.is_null() || (kinds.is_array() && Index(kinds.size()) == m.layers() &&
                                              std::all_of(kinds.begin(), kinds.end(), [](const json& kind) { return kind == "hybrid"; }));
      demand(hybrid, key, "is {}; every layer must be \"hybrid\"", text_of(kinds));
    }
    m.rms_norm_eps = finite("rms_norm_eps", 1e-5);
    demand(m.rms_norm_eps >= 0, "rms_norm_eps", "is negative");
    m.init_std = finite("initializer_range", 0.02);
    demand(m.init_std >= 0, "initializer_range", "is negative");
    m.tie_word_embeddings = flag("tie_word_embeddings", false);
    m.embedding_multiplier = finite("embedding_multiplier", 1);
    m.lm_head_multiplier = finite("lm_head_multiplier", 1);
  }

  void read_attention() {
    AttentionConfig& a = c_.model.attention;
    a.num_heads = size("num_attention_heads", 32);
    a.num_kv_heads = file_.contains("num_key_value_heads") && value("num_key_value_heads").is_null() ? a.num_heads : size("num_key_value_heads", 8);
    if (!value("head_dim").is_null()) {
      a.head_dim = size("head_dim", 0);
    } else {
      a.head_dim = c_.model.hidden_size / a.num_heads;
      demand(a.head_dim > 0, "num_attention_heads", "is {}, more than hidden_size; give head_dim", a.num_heads);
    }
    demand(a.num_heads * a.head_dim <= widest, "num_attention_heads", "times head_dim is {}; {} is the most", a.num_heads * a.head_dim, widest);
    a.bias = flag("attention_bias", false);
    a.in_multiplier = finite("attention_in_multiplier", 1);
    a.key_multiplier = finite("key_multiplier", 1);
    a.out_multiplier = finite("attention_out_multiplier", 1);
  }

  void read_mamba() {
    MambaConfig& m = c_.model.mamba;
    const Index expanded = integer("mamba_expand", 2, 1, widest) * c_.model.hidden_size;
    const bool by_expansion = file_.contains("mamba_d_ssm") && value("mamba_d_ssm").is_null();
    const Index inner = by_expansion ? expanded : size("mamba_d_ssm", 1024);
    demand(inner <= widest, "mamba_expand", "times hidden_size is {}; {} is the most", inner, widest);
    m.num_heads = size("mamba_n_heads", 128);
    demand(inner % m.num_heads == 0, "mamba_n_heads", "is {}, which does not divide the {} SSM channels (mamba_d_ssm)", m.num_heads, inner);
    m.head_dim = inner / m.num_heads;
    if (given("mamba_d_head") && value("mamba_d_head") != "auto") {
      const Index width = size("mamba_d_head", 0);
      demand(width == m.head_dim, "mamba_d_head", "is {}: times mamba_n_heads {} it is not mamba_d_ssm {}", width, m.num_heads, inner);
    }
    m.num_groups = size("mamba_n_groups", 1);
    m.state_size = size("mamba_d_state", 256);
    demand(m.num_groups * m.state_size <= widest, "mamba_n_groups", "times mamba_d_state is {}; {} is the most", m.num_groups * m.state_size, widest);
    m.conv_kernel = integer("mamba_d_conv", 4, 2, 16);
    m.chunk_size = size("mamba_chunk_size", 256);
    m.conv_bias = flag("mamba_conv_bias", true);
    m.in_bias = flag("mamba_proj_bias", false);
    m.out_bias = flag("projectors_bias", false);
    const bool norm_first = c_.norm_before_gate = flag("mamba_norm_before_gate", true);
    m.norm = !flag("mamba_rms_norm", false) ? SsmNorm::none : norm_first ? SsmNorm::norm_first : SsmNorm::gate_first;
    m.in_multiplier = finite("ssm_in_multiplier", 1);
    m.out_multiplier = finite("ssm_out_multiplier", 1);
    const std::vector<double> five = multipliers("ssm_multipliers", m.multipliers.size());
    std::copy(five.begin(), five.end(), m.multipliers.begin());
    read_time_step();
  }

  void read_time_step() {
    MambaConfig& m = c_.model.mamba;
    const std::string key = "time_step_limit";
    if (const json& limit = value(key); !limit.is_null()) {
      demand(limit.is_array() && limit.size() == 2, key, "is {}, not a list of two numbers", text_of(limit));
      m.dt_low = number(limit[0], key), m.dt_high = number(limit[1], key);
      demand(m.dt_low <= m.dt_high, key, "is {}: the first number is the greater one", text_of(limit));
      if (m.dt_low > 0 || std::isfinite(m.dt_high))
        note("{} is {} and is applied; transformers before 5.0 pass over it and use [0, inf]", key, text_of(limit));
    }
    m.dt_init_low = positive("time_step_min", 1e-3);
    m.dt_init_high = positive("time_step_max", 0.1);
  }

  void read_mlp() {
    MlpConfig& m = c_.model.mlp;
    m.intermediate_size = size("intermediate_size", 14336);
    m.bias = flag("mlp_bias", false);
    const std::vector<double> two = multipliers("mlp_multipliers", 2);
    m.gate_multiplier = two[0], m.down_multiplier = two[1];
    const std::string act = text("hidden_act", "silu");
    demand(act == "silu" || act == "swish", "hidden_act", "is \"{}\"; only silu (or swish, the same) is supported", shown(act));
  }

  // The base of the rotary positions lies in rope_parameters, in earlier versions beside it; both may also say which embedding it is.
  void read_rotary() {
    const double* base = nullptr;
    double outer = 0, inner = 0;
    if (!value("rope_theta").is_null()) outer = positive("rope_theta", 0), base = &outer;
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      const json& rope = value(key);
      if (rope.is_null()) continue;
      demand(rope.is_object(), key, "is {}, not an object", text_of(rope));
      for (const auto& [name, x] : rope.items()) {
        const std::string path = fmt::format("{}.{}", key, shown(name));
        if (name == "rope_type" || name == "type") {
          demand(x == "default", path, "is {}; only the default rotary embedding is supported", text_of(x));
        } else if (name == "partial_rotary_factor") {
          demand(x.is_number() && x == 1, path, "is {}; rotary positions of a part of a head are not supported", text_of(x));
        } else if (name == "rope_theta") {
          inner = finite(x, path);
          demand(inner > 0, path, "is {}; it must be above 0", inner);
          if (base == &outer && inner != outer) note("rope_theta is {} and {} is {}: the latter holds", outer, path, inner);
          base = &inner;
        } else {
          demand(x.is_null(), path, "is {}, and is not supported: only rope_type \"default\" with its rope_theta is", text_of(x));
        }
      }
    }
    demand(value("partial_rotary_factor").is_null() || value("partial_rotary_factor") == 1, "partial_rotary_factor",
           "is {}; rotary positions of a part of a head are not supported", text_of(value("partial_rotary_factor")));
    demand(base != nullptr, "rope_theta", "is missing, beside and inside rope_parameters, and its default differs between versions: write it");
    c_.model.attention.rope_theta = *base;
  }

  Index token(const json& x, const std::string& key) const { return integer(x, key, 0, c_.model.vocab_size - 1); }

  void read_tokens() {
    const json pad = value("pad_token_id");
    if (!given("pad_token_id")) c_.model.pad_token_id = 0;
    else c_.model.pad_token_id = pad.is_null() ? -1 : std::int32_t(token(pad, "pad_token_id"));
    if (!given("bos_token_id")) c_.begin_token = 1;
    else if (!value("bos_token_id").is_null()) c_.begin_token = token(value("bos_token_id"), "bos_token_id");
    const json end = value("eos_token_id");
    if (!given("eos_token_id")) {
      if (c_.model.vocab_size > 2) c_.end_tokens = {2};
    } else if (end.is_array()) {
      demand(end.size() <= 1024, "eos_token_id", "lists {} tokens", end.size());
      for (const json& x : end) c_.end_tokens.push_back(token(x, "eos_token_id"));
    } else if (!end.is_null()) {
      c_.end_tokens = {token(end, "eos_token_id")};
    }
    c_.positions = integer("max_position_embeddings", 8192, 1, most_positions);
  }

  void read_training() {
    const std::string old = text("torch_dtype", ""), now = text("dtype", old);
    c_.dtype = now.starts_with("torch.") ? now.substr(6) : now;
    if (c_.dtype == "auto") c_.dtype.clear();
    const std::set<std::string> dtypes{"", "bfloat16", "float16", "float32", "float64"};
    demand(dtypes.contains(c_.dtype), now == old ? "torch_dtype" : "dtype", "is \"{}\", which is no type of weights", shown(now));
    if (value("attention_dropout").is_null()) return;
    const double dropout = finite("attention_dropout", 0);
    demand(dropout >= 0 && dropout < 1, "attention_dropout", "is {}; it must be from 0 to below 1", dropout);
    // It belongs to the training that was, not to the model: evaluation never applies it.
    if (dropout > 0) note("attention_dropout {} is not applied: training here goes on without dropout", dropout);
  }

  const json& file_;
  const std::string& origin_;
  std::set<std::string> known_;
  HuggingFaceConfig c_;
};

}  // namespace

HuggingFaceConfig parse_config_json(std::string_view text, const std::string& origin) {
  require(text.size() <= largest_file, Exit::data, "{}: has {} bytes, and {} are the most", origin, text.size(), largest_file);
  const json file = parse_json(text, origin);
  require(file.is_object(), Exit::data, "{}: is not a JSON object", origin);
  return Reader(file, origin).read();
}

HuggingFaceConfig read_config_json(const std::filesystem::path& file) {
  return parse_config_json(read_text(file.string(), largest_file), file.string());
}

void require_falcon_h1(const ModelConfig& m) {
  const auto other = m.pattern.find_first_not_of('P');
  require(other == std::string::npos, Exit::config,
          "model.pattern: layer {} is '{}'; only Falcon-H1, in which every layer is a parallel block 'P', has a form in Hugging Face's transformers",
          other, other == std::string::npos ? ' ' : m.pattern[other]);
}

namespace {

void write_shape(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const ModelConfig& m = c.model;
  j["vocab_size"] = m.vocab_size;
  j["hidden_size"] = m.hidden_size;
  j["intermediate_size"] = m.mlp.intermediate_size;
  j["num_hidden_layers"] = m.layers();
  j["num_attention_heads"] = m.attention.num_heads;
  j["num_key_value_heads"] = m.attention.num_kv_heads;
  j["head_dim"] = m.attention.head_dim;
  j["hidden_act"] = "silu";
  j["rms_norm_eps"] = m.rms_norm_eps;
  j["initializer_range"] = m.init_std;
  j["tie_word_embeddings"] = m.tie_word_embeddings;
  j["max_position_embeddings"] = c.positions;
  j["rope_theta"] = m.attention.rope_theta;
  j["rope_scaling"] = nullptr;
  j["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", m.attention.rope_theta}};
  j["attention_dropout"] = 0.0;
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
  // [0, inf] is every version's default. JSON has no word for infinity, and versions that read the key at all read it spelled so.
  const auto limit = [](double x) {
    return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json{{word_for_infinity, x > 0 ? "Infinity" : "-Infinity"}};
  };
  if (m.mamba.dt_low != 0 || std::isfinite(m.mamba.dt_high)) j["time_step_limit"] = {limit(m.mamba.dt_low), limit(m.mamba.dt_high)};
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

void write_tokens(const HuggingFaceConfig& c, nlohmann::ordered_json& j) {
  const auto token = [](bool known, Index id) { return known ? nlohmann::ordered_json(id) : nlohmann::ordered_json(nullptr); };
  j["pad_token_id"] = token(c.model.pad_token_id >= 0, c.model.pad_token_id);
  j["bos_token_id"] = token(c.begin_token.has_value(), c.begin_token.value_or(0));
  j["eos_token_id"] = token(!c.end_tokens.empty(), c.end_tokens.empty() ? 0 : c.end_tokens[0]);
  if (c.end_tokens.size() > 1) j["eos_token_id"] = c.end_tokens;
}

}  // namespace

std::string write_config_json(const HuggingFaceConfig& c) {
  require_falcon_h1(c.model);
  nlohmann::ordered_json j;
  j["architectures"] = {"FalconH1ForCausalLM"};
  j["model_type"] = "falcon_h1";
  if (!c.dtype.empty()) j["dtype"] = c.dtype, j["torch_dtype"] = c.dtype;
  write_shape(c, j);
  write_mamba(c, j);
  write_multipliers(c.model, j);
  j["num_logits_to_keep"] = 1;
  j["use_cache"] = true;
  write_tokens(c, j);
  return j.dump(2) + "\n";
}

}  // namespace gyr
