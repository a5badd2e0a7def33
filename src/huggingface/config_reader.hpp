// SPDX-License-Identifier: BSD-3-Clause
// The values of a config.json, each checked as it is read. What every family's file says alike is read here: tokens, types, rotary positions.
#pragma once

#include <nlohmann/json.hpp>
#include <set>

#include "src/huggingface/config_json.hpp"

namespace gyr {

// Words of layer_types.
inline constexpr const char *full_kind = "full_attention", *window_kind = "sliding_attention";

class ConfigReader {
 public:
  using json = nlohmann::json;

  // Messages call the file `origin`.
  ConfigReader(const json& file, const std::string& origin) : file_(file), origin_(origin) {}

  HuggingFaceConfig config;  // what was read so far

  // Exit::data naming file and key unless the condition holds.
  template <class... Args>
  void demand(bool condition, const std::string& key, fmt::format_string<Args...> text, Args&&... args) const {
    if (!condition) fail(Exit::data, "{}: {} {}", origin_, key, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void note(fmt::format_string<Args...> text, Args&&... args) {
    config.notes.push_back(fmt::format("{}: {}", origin_, fmt::format(text, std::forward<Args>(args)...)));
  }
  static std::string text_of(const json& value);

  // The key's value; null where it is null or not there.
  const json& value(const std::string& key);
  bool given(const std::string& key);
  void known(const std::string& key) { known_.insert(key); }  // says nothing of the model's function in this family
  void carry(const std::string& key);                         // neither, and an export of the same class says it again
  // A key that transformers takes for `name`: Exit::data where it says something else.
  void second_name(const std::string& key, const std::string& name);

  // Values within a range, or the other one where the key is not there.
  Index integer(const json&, const std::string& key, Index least, Index most) const;
  Index integer(const std::string& key, Index otherwise, Index least, Index most) {
    return given(key) ? integer(value(key), key, least, most) : otherwise;
  }
  Index size(const std::string& key, Index otherwise) { return integer(key, otherwise, 1, widest); }
  bool flag(const std::string& key, bool otherwise);
  double number(const json&, const std::string& key) const;  // a finite number, or an infinite one where the file spells it
  double finite(const json&, const std::string& key) const;
  double finite(const std::string& key, double otherwise) { return given(key) ? finite(value(key), key) : otherwise; }
  double positive(const std::string& key, double otherwise);
  double not_negative(const std::string& key, double otherwise);
  double dropout(const std::string& key, double otherwise);  // a share of numbers
  // A list of `count` finite numbers; ones where the key is null or not there.
  std::vector<double> multipliers(const std::string& key, std::size_t count);
  std::string text(const std::string& key, const std::string& otherwise);
  void silu(const std::string& key);  // the only activation
  Activation activation(const std::string& key, Activation otherwise);
  Activation find_activation(const std::string& name, const std::string& key) const;
  static const char* name_of(Activation);  // as most files call it
  // Names of the classes that a head tells: id2label, or as many as num_labels says, which are two where it is not there.
  std::vector<std::string> classes();

  // vocab_size, hidden_size, initializer_range, tie_word_embeddings
  void read_widths(Index vocab_size, Index hidden_size, bool tied);
  // num_attention_heads, num_key_value_heads, head_dim
  void read_heads(Index num_heads, Index num_kv_heads);
  // num_attention_heads, each with keys and values of its own, which share hidden_size evenly
  void read_multi_head_attention(Index num_heads);
  // rope_theta and how positions are stretched: beside each other in rope_parameters, in earlier versions in rope_scaling and above it.
  // Without a base to fall back on it must be there. read_tokens, which has to come behind it, reads the positions first trained on.
  struct Rotary {
    bool stretched = false;  // rope_type linear, llama3, yarn and dynamic: positions of texts longer than those first trained on
    bool partial = false;    // of a part of each head
    bool by_kind = false;  // of each kind of layer_types apart, which rope_parameters must name; where tokens are seen through a window, unstretched
  };
  void read_rotary(std::optional<double> theta, const Rotary& supported);
  // [least, greatest] time step of an SSM
  void read_time_step_limit(const std::string& key);
  // Where the key is not there: this token. One that is null means none.
  void read_tokens(std::optional<Index> pad, std::optional<Index> begin, std::optional<Index> end, Index positions);
  void read_training();
  void note_unknown_keys();
  HuggingFaceConfig checked();  // with all that was read, when it is a model

 private:
  void check_kinds(const std::string& key, const json& rope) const;
  void read_rotary_key(const std::string& key, std::optional<double>& base);
  void read_rotary_object(const std::string& key, const json&, std::optional<double>& base);
  void read_rotary_of_windows(const std::string& key, const json&);
  void read_partial(const std::string& key, const json&);
  bool read_scaling(const std::string& name, const json&, const std::string& path);
  void read_scales(const std::string& key, const json&);
  void read_original_positions();
  Index token(const json& x, const std::string& key) const { return integer(x, key, 0, config.model.vocab_size - 1); }
  std::optional<Index> token_or(const std::string& key, std::optional<Index> otherwise);

  const json& file_;
  const std::string& origin_;
  std::set<std::string> known_;
  Rotary rotary_;
};

// The same on the way out.
void write_widths(const ModelConfig&, nlohmann::ordered_json&);
void write_classes(const ModelConfig&, nlohmann::ordered_json&);  // id2label, label2id
void write_heads(const ModelConfig&, nlohmann::ordered_json&);
void write_rotary(const AttentionConfig&, nlohmann::ordered_json&);
void write_tokens(const HuggingFaceConfig&, nlohmann::ordered_json&);
nlohmann::ordered_json spelled(double);  // infinity as versions that read it spell it

}  // namespace gyr
