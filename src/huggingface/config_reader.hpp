// SPDX-License-Identifier: BSD-3-Clause
// Reads the values of a config.json and checks each one. Parts that all model families share are read here: token ids,
// dtype, rotary position embedding.
#pragma once

#include <nlohmann/json.hpp>
#include <set>

#include "src/huggingface/config_json.hpp"

namespace gyr {

// Values of layer_types: full attention and sliding-window attention.
inline constexpr const char *full_kind = "full_attention", *window_kind = "sliding_attention";

class ConfigReader {
 public:
  using json = nlohmann::json;

  // `origin` is the file name used in messages.
  ConfigReader(const json& file, const std::string& origin) : file_(file), origin_(origin) {}

  HuggingFaceConfig config;  // everything read so far
  const std::string& origin() const { return origin_; }

  // Throws Exit::data naming file and key unless the condition holds. The text continues after the key: "FILE: KEY is
  // ...".
  template <class... Args>
  void demand(bool condition, const std::string& key, fmt::format_string<Args...> text, Args&&... args) const {
    if (!condition) fail(Exit::data, "{}: {} {}", origin_, key, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void note(fmt::format_string<Args...> text, Args&&... args) {
    config.notes.push_back(fmt::format("{}: {}", origin_, fmt::format(text, std::forward<Args>(args)...)));
  }
  static std::string text_of(const json& value);

  // Value of the key, marked as known; null if the key is absent or null.
  const json& value(const std::string& key);
  bool given(const std::string& key);
  void known(const std::string& key) { known_.insert(key); }  // accepts the key but ignores it: it has no effect on this family's model
  void carry(const std::string& key);                         // ignores the key, but writes it again on export to the same class
  // Checks a second spelling of the key `name` that transformers accepts. Throws Exit::data if the second spelling is
  // given without `name`, or with another value.
  void second_name(const std::string& key, const std::string& name);

  // Values that must lie in [least, most]; if the key is absent, `otherwise` is returned.
  Index integer(const json&, const std::string& key, Index least, Index most) const;
  Index integer(const std::string& key, Index otherwise, Index least, Index most) {
    return given(key) ? integer(value(key), key, least, most) : otherwise;
  }
  Index size(const std::string& key, Index otherwise) { return integer(key, otherwise, 1, widest); }
  bool flag(const std::string& key, bool otherwise);
  double number(const json&, const std::string& key) const;  // any number, including infinity in Python's spelling {"__float__": "Infinity"}
  double finite(const json&, const std::string& key) const;
  double finite(const std::string& key, double otherwise) { return given(key) ? finite(value(key), key) : otherwise; }
  double positive(const std::string& key, double otherwise);
  double not_negative(const std::string& key, double otherwise);
  double dropout(const std::string& key, double otherwise);  // dropout probability, 0 to 0.99
  // A list of `count` finite multipliers; all 1 if the key is null or absent.
  std::vector<double> multipliers(const std::string& key, std::size_t count);
  std::string text(const std::string& key, const std::string& otherwise);
  void silu(const std::string& key);  // Throws Exit::data unless the activation is silu, or swish, its other name
  Activation activation(const std::string& key, Activation otherwise);
  Activation find_activation(const std::string& name, const std::string& key) const;
  static const char* name_of(Activation);  // Hugging Face's most common name of the activation
  // Class names of a classification head: from id2label, or else numbered up to num_labels (default 2).
  std::vector<std::string> classes();

  // Reads vocab_size, hidden_size, initializer_range, tie_word_embeddings.
  void read_widths(Index vocab_size, Index hidden_size, bool tied);
  // Reads num_attention_heads, num_key_value_heads, head_dim.
  void read_heads(Index num_heads, Index num_kv_heads);
  // Reads num_attention_heads of multi-head attention: as many key/value heads as query heads, head_dim = hidden_size /
  // num_attention_heads.
  void read_multi_head_attention(Index num_heads);
  // Reads rope_theta and the RoPE scaling (context extension): both from rope_parameters, or in files of earlier
  // versions from rope_theta and rope_scaling. rope_theta must be given if `theta` is empty. Call read_tokens()
  // afterwards: it reads the original context length.
  struct Rotary {
    bool stretched = false;  // rope_type linear, llama3, yarn and dynamic are supported (longer contexts than in pretraining)
    bool partial = false;    // partial_rotary_factor below 1 is supported: RoPE on a fraction of each head
    bool sections = false;   // the keys mrope_* are ignored, because text rotates all sections by the same position
    bool by_kind = false;    // rope_parameters holds one object per value of layer_types; sliding-window layers support no RoPE scaling
  };
  void read_rotary(std::optional<double> theta, const Rotary& supported);
  // Reads [least, greatest] time step dt of an SSM.
  void read_time_step_limit(const std::string& key);
  // Reads token ids and max_position_embeddings. The arguments are the defaults of absent keys; a key that is null
  // means that there is no such token.
  void read_tokens(std::optional<Index> pad, std::optional<Index> begin, std::optional<Index> end, Index positions);
  void read_training();
  void note_unknown_keys();
  HuggingFaceConfig checked();  // returns everything read, after the checks of the model configuration

 private:
  void check_kinds(const std::string& key, const json& rope) const;
  void read_rotary_key(const std::string& key, std::optional<double>& base);
  void read_rotary_object(const std::string& key, const json&, std::optional<double>& base);
  void read_rotary_of_windows(const std::string& key, const json&);
  void read_partial(const std::string& key, const json&);
  bool read_scaling(const std::string& name, const json&, const std::string& path);
  void read_scales(const std::string& key, const json&);
  void read_truncate(const std::string& path, const json&);
  void read_original_positions();
  Index token(const json& x, const std::string& key) const { return integer(x, key, 0, config.model.vocab_size - 1); }
  std::optional<Index> token_or(const std::string& key, std::optional<Index> otherwise);

  const json& file_;
  const std::string& origin_;
  std::set<std::string> known_;
  Rotary rotary_;
};

// Counterparts that write the same keys.
void write_widths(const ModelConfig&, nlohmann::ordered_json&);
void write_classes(const ModelConfig&, nlohmann::ordered_json&);  // writes id2label and label2id
void write_heads(const ModelConfig&, nlohmann::ordered_json&);
void write_rotary(const AttentionConfig&, nlohmann::ordered_json&);
void write_tokens(const HuggingFaceConfig&, nlohmann::ordered_json&);
nlohmann::ordered_json spelled(double);  // infinity becomes {"__float__": "Infinity"}, which transformers reads

}  // namespace gyr
