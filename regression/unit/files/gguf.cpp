// SPDX-License-Identifier: BSD-3-Clause
// An exported GGUF file, read back by an independent reader, holds the contents of the model folder. Tensors are
// compared with plain loops over the folder's tensors, q8_0 blocks with their rounding rule, and key-values with
// config.json and tokenizer.json. regression/gguf.sh compares with llama.cpp itself.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "regression/planner/random_cluster.hpp"
#include "regression/support/model_folders.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/gguf/block.hpp"
#include "src/gguf/export.hpp"
#include "src/gguf/vocabulary.hpp"
#include "src/huggingface/family.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::testing::gguf_suite {
namespace {

namespace fs = std::filesystem;
using gguf::Type;
using nlohmann::json;

// ---- a reader of GGUF files ----

class Bytes {
 public:
  explicit Bytes(const std::string& bytes) : bytes_(bytes) {}
  template <class T>
  T take() {
    T x;
    EXPECT_LE(at_ + sizeof x, bytes_.size());
    std::memcpy(&x, bytes_.data() + at_, sizeof x);
    at_ += sizeof x;
    return x;
  }
  std::string text() {
    const std::size_t size = take<std::uint64_t>();
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  json value(std::uint32_t kind) {
    switch (kind) {
      case 4: return take<std::uint32_t>();
      case 5: return take<std::int32_t>();
      case 6: return take<float>();
      case 7: return take<std::uint8_t>() != 0;
      case 8: return text();
      default: break;
    }
    EXPECT_EQ(kind, 9u);
    const auto of = take<std::uint32_t>();
    json list = json::array();
    for (auto left = take<std::uint64_t>(); left > 0; --left) list.push_back(value(of));
    return list;
  }
  std::size_t at() const { return at_; }

 private:
  const std::string& bytes_;
  std::size_t at_ = 0;
};

struct Stored {
  std::uint32_t type;
  std::vector<std::uint64_t> extents;  // the fastest-varying dimension first
  std::string data;
};

struct File {
  json values;
  std::map<std::string, Stored> tensors;
};

std::uint64_t rounded_up(std::uint64_t bytes) { return (bytes + 31) / 32 * 32; }

// Reads a file. Checks that tensors follow each other at multiples of 32 bytes and fill the file.
File read_file(const fs::path& path) {
  const std::string bytes = contents(path);
  Bytes in(bytes);
  EXPECT_EQ(bytes.substr(0, 4), "GGUF");
  in.take<std::uint32_t>();
  EXPECT_EQ(in.take<std::uint32_t>(), 3u);
  const auto tensors = in.take<std::uint64_t>(), values = in.take<std::uint64_t>();
  File file;
  for (std::uint64_t i = 0; i < values; ++i) {
    const std::string key = in.text();
    EXPECT_FALSE(file.values.contains(key)) << key;
    file.values[key] = in.value(in.take<std::uint32_t>());
  }
  std::vector<std::pair<std::string, std::uint64_t>> offsets;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    offsets.emplace_back(in.text(), 0);
    Stored& t = file.tensors[offsets.back().first];
    t.extents.resize(in.take<std::uint32_t>());
    for (auto& extent : t.extents) extent = in.take<std::uint64_t>();
    t.type = in.take<std::uint32_t>();
    offsets.back().second = in.take<std::uint64_t>();
  }
  const std::uint64_t begin = rounded_up(in.at());
  std::uint64_t end = 0;
  for (const auto& [name, offset] : offsets) {
    Stored& t = file.tensors[name];
    std::uint64_t element_count = 1;
    for (const auto extent : t.extents) element_count *= extent;
    EXPECT_EQ(offset, end) << name;
    const std::uint64_t size = t.type == 0    ? 4 * element_count
                               : t.type == 8  ? element_count / 32 * 34
                               : t.type == 34 ? element_count / 256 * 54
                               : t.type == 35 ? element_count / 256 * 66
                                              : 2 * element_count;
    t.data = bytes.substr(begin + offset, size);
    EXPECT_EQ(t.data.size(), size) << name;
    end = rounded_up(offset + size);
  }
  EXPECT_EQ(file.tensors.size(), tensors);
  EXPECT_EQ(begin + end, bytes.size());
  return file;
}

// ---- expected contents ----

struct Expected {
  Shape shape;
  std::vector<float> x;
};

using Names = std::vector<std::pair<std::string, std::string>>;

void rename(std::string& name, const Names& names) {
  for (const auto& [from, to] : names)
    if (const auto at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
}

// GGUF name of a Hugging Face tensor of any class. Longer patterns are replaced first.
std::string name_of(std::string name, const std::string& architecture) {
  static const Names common{{"model.layers.", "blk."},
                            {"backbone.layers.", "blk."},
                            {"transformer.h.", "blk."},
                            {"transformer.wte", "token_embd"},
                            {"transformer.wpe", "position_embd"},
                            {"transformer.ln_f", "output_norm"},
                            {"model.embed_tokens", "token_embd"},
                            {"backbone.embeddings", "token_embd"},
                            {"model.final_layernorm", "output_norm"},
                            {"backbone.norm_f", "output_norm"},
                            {"model.norm", "output_norm"},
                            {"lm_head", "output"},
                            {"pre_feedforward_layernorm", "ffn_norm"},
                            {"post_feedforward_layernorm", "post_ffw_norm"},
                            {"pre_ff_layernorm", "ffn_norm"},
                            {"input_layernorm", "attn_norm"},
                            {"self_attn.q_norm", "attn_q_norm"},
                            {"self_attn.k_norm", "attn_k_norm"},
                            {"self_attn.q_proj", "attn_q"},
                            {"self_attn.k_proj", "attn_k"},
                            {"self_attn.v_proj", "attn_v"},
                            {"self_attn.o_proj", "attn_output"},
                            {"self_attn.sinks", "attn_sinks.weight"},
                            {"attn.c_attn", "attn_qkv"},
                            {"attn.c_proj", "attn_output"},
                            {"mlp.c_fc", "ffn_up"},
                            {"mlp.c_proj", "ffn_down"},
                            {"ln_1", "attn_norm"},
                            {"ln_2", "ffn_norm"},
                            {"block_sparse_moe.gate.", "ffn_gate_inp."},
                            {"mlp.gate.", "ffn_gate_inp."},
                            {"mlp.router.", "ffn_gate_inp."},
                            {"feed_forward.gate_proj", "ffn_gate"},
                            {"feed_forward.up_proj", "ffn_up"},
                            {"feed_forward.down_proj", "ffn_down"},
                            {"mlp.gate_proj", "ffn_gate"},
                            {"mlp.up_proj", "ffn_up"},
                            {"mlp.down_proj", "ffn_down"},
                            {"mamba.", "mixer."},
                            {"mixer.up_proj", "ffn_up"},
                            {"mixer.down_proj", "ffn_down"},
                            {"mixer.q_proj", "attn_q"},
                            {"mixer.k_proj", "attn_k"},
                            {"mixer.v_proj", "attn_v"},
                            {"mixer.o_proj", "attn_output"},
                            {"mixer.in_proj", "ssm_in"},
                            {"mixer.out_proj", "ssm_out"},
                            {"mixer.conv1d", "ssm_conv1d"},
                            {"mixer.norm", "ssm_norm"},
                            {"mixer.dt_bias", "ssm_dt.bias"},
                            {"mixer.A_log", "ssm_a"},
                            {"mixer.D", "ssm_d"}};
  const bool second = architecture == "gemma2" || architecture == "gemma3";
  rename(name, {{"post_attention_layernorm", second ? "post_attention_norm" : "ffn_norm"}});
  rename(name, common);
  if (architecture == "mamba2" || architecture == "nemotron_h")
    if (name.ends_with(".norm.weight") && name.starts_with("blk.")) rename(name, {{".norm.weight", ".attn_norm.weight"}});
  if (architecture == "falcon-h1") rename(name, {{"ffn_norm.weight", "ffn_norm"}});
  return name;
}

Expected transposed(const Expected& e) {
  Expected t{{e.shape[1], e.shape[0]}, std::vector<float>(e.x.size())};
  for (Index i = 0; i < e.shape[0]; ++i)
    for (Index j = 0; j < e.shape[1]; ++j) t.x[std::size_t(j * e.shape[0] + i)] = e.x[std::size_t(i * e.shape[1] + j)];
  return t;
}

// Reorders the channels of each head for rotary embedding of adjacent pairs: c and c + head_dim / 2 become neighbours.
void interleave_rotary_pairs(Expected& e, Index head_dim) {
  const std::vector<float> old = e.x;
  const Index columns = Index(old.size()) / e.shape[0], half = head_dim / 2;
  for (Index r = 0; r < e.shape[0]; ++r) {
    const Index head = r / head_dim, c = r % head_dim, to = head * head_dim + (c < half ? 2 * c : 2 * (c - half) + 1);
    for (Index j = 0; j < columns; ++j) e.x[std::size_t(to * columns + j)] = old[std::size_t(r * columns + j)];
  }
}

// x times the multipliers of Falcon-H1 that apply to this row of the weight.
float multiplied(const json& c, const std::string& name, Index row, float x) {
  const auto times = [&](const char* key) { x *= float(c[key].get<double>()); };
  const auto times_of = [&](const char* key, std::size_t i) { x *= float(c[key][i].get<double>()); };
  if (name.find("k_proj") != name.npos) times("key_multiplier");
  if (name.find("q_proj") != name.npos || name.find("k_proj") != name.npos || name.find("v_proj") != name.npos) times("attention_in_multiplier");
  if (name.find("o_proj") != name.npos) times("attention_out_multiplier");
  if (name.find("gate_proj") != name.npos) times_of("mlp_multipliers", 0);
  if (name.find("down_proj") != name.npos) times_of("mlp_multipliers", 1);
  if (name.find("embed_tokens") != name.npos) times("embedding_multiplier");
  if (name.find("lm_head") != name.npos) times("lm_head_multiplier");
  if (name.find("mamba.out_proj") != name.npos) times("ssm_out_multiplier");
  if (name.find("mamba.in_proj") != name.npos) {
    times("ssm_in_multiplier");
    const Index inner = c["mamba_d_ssm"], states = c["mamba_n_groups"].get<Index>() * c["mamba_d_state"].get<Index>();
    times_of("ssm_multipliers", row < inner ? 0 : row < 2 * inner ? 1 : row < 2 * inner + states ? 2 : row < 2 * inner + 2 * states ? 3 : 4);
  }
  return x;
}

Index number(const json& c, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (c.contains(key) && !c[key].is_null()) return c[key];
  return 1;
}

class FolderInGguf {
 public:
  FolderInGguf(const fs::path& folder, std::string architecture)
      : weights_(folder), c_(json::parse(contents(folder / "config.json"))), architecture_(std::move(architecture)) {
    for (const std::string& name : weights_.names()) add(name);
  }
  std::map<std::string, Expected> tensors;

 private:
  Expected read(const std::string& name) const {
    const TensorReader reader = weights_.open(name);
    Expected e{reader.shape, std::vector<float>(std::size_t(elements(reader.shape)))};
    std::vector<std::byte> stored(e.x.size() * std::size_t(size_of(reader.dtype)));
    reader.read(full_box(e.shape), stored.data(), e.shape, full_box(e.shape));
    for (std::size_t i = 0; i < e.x.size(); ++i)
      e.x[i] =
          reader.dtype == DType::bf16 ? float(reinterpret_cast<const bf16*>(stored.data())[i]) : reinterpret_cast<const float*>(stored.data())[i];
    return e;
  }

  bool is(const char* architecture) const { return architecture_ == architecture; }

  // Collects the experts of a layer in one tensor, with the expert as its first dimension.
  void add_expert(const std::string& name, const Expected& e) {
    const auto at = name.find(".experts.");
    std::string rest = name.substr(at + 9);
    rest = rest.substr(rest.find('.') + 1);
    rename(rest, {{"w1.", "gate_proj."}, {"w2.", "down_proj."}, {"w3.", "up_proj."}});
    const std::string block = name.substr(0, name.rfind('.', at - 1) + 1);
    Expected& all = tensors[name_of(block + "ffn_" + rest.substr(0, rest.find("_proj")) + "_exps.weight", architecture_)];
    if (all.shape.empty()) all.shape = {0, e.shape[0], e.shape[1]};
    ++all.shape[0];
    all.x.insert(all.x.end(), e.x.begin(), e.x.end());
  }

  void add(const std::string& name) {
    Expected e = read(name);
    if (name.find(".experts.") != name.npos) return add_expert(name, e);
    const std::string there = name_of(name, architecture_);
    const auto part = [&](const char* end) { return there.ends_with(end); };
    if (is("gpt2") && name.find(".c_") != name.npos && e.shape.size() == 2) e = transposed(e);
    if (is("falcon-h1"))
      for (Index r = 0; r < e.shape[0]; ++r)
        for (Index i = 0, n = Index(e.x.size()) / e.shape[0]; i < n; ++i)
          e.x[std::size_t(r * n + i)] = multiplied(c_, name, r, e.x[std::size_t(r * n + i)]);
    if ((is("llama") || is("nemotron_h")) && (there.find(".attn_q.") != there.npos || there.find(".attn_k.") != there.npos))
      interleave_rotary_pairs(
          e, c_.contains("head_dim") ? c_["head_dim"].get<Index>() : c_["hidden_size"].get<Index>() / c_["num_attention_heads"].get<Index>());
    if ((is("gemma2") || is("gemma3")) && part("norm.weight"))
      for (float& x : e.x) x += 1;
    if (part("ssm_a"))
      for (float& x : e.x) x = -std::exp(x);
    if (part("ssm_a") || part("ssm_d")) e.shape = {e.shape[0], 1};
    if (part("ssm_conv1d.weight")) e.shape = {e.shape[0], e.shape[2]};
    const Index groups = number(c_, {"mamba_n_groups", "n_groups"});
    if (part("ssm_norm.weight")) e.shape = {groups, e.shape[0] / groups};
    tensors[there] = e;
  }

  ModelFolder weights_;
  json c_;
  std::string architecture_;
};

// Encodes q8_0 blocks in plain loops: the nearest of all 255 values, and of two equally near ones the one further from
// zero.
std::string blocks_of(const std::vector<float>& x) {
  std::string out;
  for (std::size_t b = 0; b < x.size(); b += 32) {
    float largest = 0;
    for (std::size_t i = b; i < b + 32; ++i) largest = std::max(largest, std::fabs(x[i]));
    const float scale = largest / 127, inverse = scale == 0 ? 0 : 1 / scale;
    const std::uint16_t half = float_to_half(scale);
    out.append(reinterpret_cast<const char*>(&half), 2);
    for (std::size_t i = b; i < b + 32; ++i) {
      const float wanted = x[i] * inverse;
      int best = 0;
      for (int q = -127; q <= 127; ++q) {
        const double here = std::fabs(double(wanted) - q), there = std::fabs(double(wanted) - best);
        if (here < there || (here == there && std::abs(q) > std::abs(best))) best = q;
      }
      out += char(best);
    }
  }
  return out;
}

std::string data_of(const Expected& e, std::uint32_t type) {
  std::string out;
  if (type == 8) return blocks_of(e.x);
  for (const float x : e.x) {
    if (type == 0) out.append(reinterpret_cast<const char*>(&x), 4);
    const bf16 narrow(x);
    const std::uint16_t half = float_to_half(x);
    if (type == 30) out.append(reinterpret_cast<const char*>(&narrow), 2);
    if (type == 1) out.append(reinterpret_cast<const char*>(&half), 2);
  }
  return out;
}

std::uint32_t type_expected(const std::string& name, const Expected& e, Type wanted) {
  const std::vector<std::string> wide{"_norm.weight", "ffn_gate_inp.weight", "position_embd.weight", "ssm_conv1d.weight"};
  const bool stays = std::any_of(wide.begin(), wide.end(), [&](const std::string& end) { return name.ends_with(end); });
  if (e.shape.size() < 2 || stays || !name.ends_with(".weight")) return 0;
  return wanted == Type::q8_0 && e.shape.back() % 32 != 0 ? 1 : std::uint32_t(wanted);
}

void expect_holds(const File& file, const std::map<std::string, Expected>& tensors, Type type) {
  EXPECT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, e] : tensors) {
    const auto found = file.tensors.find(name);
    ASSERT_NE(found, file.tensors.end()) << name;
    const Stored& t = found->second;
    EXPECT_EQ(std::vector<Index>(t.extents.rbegin(), t.extents.rend()), e.shape) << name;
    EXPECT_EQ(t.type, type_expected(name, e, type)) << name;
    EXPECT_EQ(t.data, data_of(e, t.type)) << name;
  }
}

GgufOptions plain(Type type) {
  GgufOptions options;
  options.type = type, options.no_tokenizer = true;
  return options;
}

constexpr Type types[] = {Type::f32, Type::bf16, Type::q8_0};

// ---- tests ----

struct Case {
  const char *folder, *architecture;
};
constexpr Case cases[] = {{"huggingface/plain_gate", "falcon-h1"},
                          {"huggingface/gate_first_two_groups", "falcon-h1"},
                          {"huggingface/like_7b", "falcon-h1"},
                          {"huggingface/like_34b", "falcon-h1"},
                          {"families/llama", "llama"},
                          {"families/llama_biases", "llama"},
                          {"families/mistral", "llama"},
                          {"families/mixtral", "llama"},
                          {"families/mixtral_many", "llama"},
                          {"families/qwen2", "qwen2"},
                          {"families/qwen3", "qwen3"},
                          {"families/qwen3_moe", "qwen3moe"},
                          {"families/gpt2", "gpt2"},
                          {"families/mamba2", "mamba2"},
                          {"families/gemma2", "gemma2"},
                          {"families/gemma3", "gemma3"},
                          {"families/nemotron_h", "nemotron_h"}};

class gguf_folder : public ::testing::TestWithParam<Case> {
 protected:
  const fs::path folder = fs::path(GYR_SOURCE_DIR) / "regression/golden" / GetParam().folder;
};

INSTANTIATE_TEST_SUITE_P(gguf, gguf_folder, ::testing::ValuesIn(cases),
                         [](const auto& info) { return fs::path(info.param.folder).filename().string(); });

// Writes a folder of the configuration, with values of the test cases.
fs::path written_folder(const HuggingFaceConfig& config, const Folder& to) {
  fs::create_directories(to / "model");
  const Family& family = *find_family(config.model_type);
  const StoredNames names(family, config.model);
  put_contents(to / "model" / config_file_name, write_config_json(config, family));
  std::vector<Weight> weights = weights_of(config.model);
  for (Weight& w : weights) w.name = names.place(w.name).name;
  write_weights(to / "model" / one_file_name, weights, safetensors::Type::f32);
  return to / "model";
}

// A variant, supported by llama.cpp, of a golden model that is not: scores are scaled by the head dimension, and every
// layer has experts.
fs::path like_golden(const fs::path& folder, const Folder& to) {
  HuggingFaceConfig config = read_config_json(folder / config_file_name);
  config.model.attention.key_multiplier = 1;
  if (config.model_type == "qwen3_moe") std::replace(config.model.pattern.begin(), config.model.pattern.end(), '-', 'E');
  return written_folder(config, to);
}

fs::path copy_weights_only(const fs::path& folder, const Folder& to) {
  fs::create_directories(to / "model");
  const std::string name = folder.filename();
  if (name.starts_with("gemma") || name == "qwen3_moe") return like_golden(folder, to);
  for (const char* file : {"config.json", "model.safetensors"}) fs::copy_file(folder / file, to / "model" / file);
  return to / "model";
}

TEST_P(gguf_folder, file_holds_every_tensor_of_the_folder) {
  const Folder to;
  const fs::path model = copy_weights_only(folder, to);
  const FolderInGguf expected(model, GetParam().architecture);
  for (const Type type : types) {
    GgufOptions options = plain(type);
    options.overwrite = true;
    export_gguf(model, to / "file.gguf", options, {});
    const File file = read_file(to / "file.gguf");
    EXPECT_EQ(file.values["general.architecture"], GetParam().architecture);
    EXPECT_EQ(file.values["general.file_type"], type == Type::f32 ? 0 : type == Type::bf16 ? 32 : 7);
    expect_holds(file, expected.tensors, type);
  }
}

// Exporting a checkpoint gives the same bytes as exporting the folder that it was imported from, if both have the same
// name.
TEST_P(gguf_folder, checkpoint_gives_the_same_file) {
  const Folder to;
  const fs::path model = copy_weights_only(folder, to);
  import_folder(model, to / "checkpoint", false, {});
  fs::create_directories(to / "aside");
  fs::rename(to / "checkpoint", to / "aside/model");
  export_gguf(model, to / "a.gguf", plain(Type::f32), {});
  export_gguf(to / "aside/model", to / "b.gguf", plain(Type::f32), {});
  EXPECT_EQ(contents(to / "a.gguf"), contents(to / "b.gguf"));
}

// The values of config.json, under the key names of llama.cpp.
TEST_P(gguf_folder, file_holds_values_of_config_json) {
  const Folder to;
  const fs::path model = copy_weights_only(folder, to);
  const json c = json::parse(contents(model / "config.json"));
  export_gguf(model, to / "file.gguf", plain(Type::f32), {});
  const json values = read_file(to / "file.gguf").values;
  const std::string prefix = std::string(GetParam().architecture) + ".";
  const auto expect = [&](const char* key, std::initializer_list<const char*> there) {
    for (const char* name : there)
      if (c.contains(name) && c[name].is_number()) {
        ASSERT_TRUE(values.contains(prefix + key)) << key;
        EXPECT_EQ(values[prefix + key].get<float>(), c[name].get<float>()) << key;
        return;
      }
  };
  expect("vocab_size", {"vocab_size"});
  expect("embedding_length", {"hidden_size", "n_embd"});
  expect("block_count", {"num_hidden_layers", "n_layer"});
  expect("attention.head_count", {"num_attention_heads", "n_head"});
  if (c["model_type"] != "mamba2") expect("attention.key_length", {"head_dim"});
  if (c["model_type"] != "nemotron_h" && c["model_type"] != "mamba2") expect("context_length", {"max_position_embeddings", "n_positions"});
  if (c["model_type"] != "nemotron_h") expect("attention.head_count_kv", {"num_key_value_heads"});
  if (c["model_type"] != "nemotron_h") expect("feed_forward_length", {"intermediate_size"});
  expect("attention.layer_norm_rms_epsilon", {"rms_norm_eps"});
  expect(c["model_type"] == "gpt2" ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", {"layer_norm_epsilon"});
  if (c["model_type"] != "nemotron_h") {
    expect("expert_count", {"num_local_experts", "num_experts"});
    expect("expert_used_count", {"num_experts_per_tok"});
    expect("expert_feed_forward_length", {"moe_intermediate_size"});
  }
  expect("ssm.conv_kernel", {"mamba_d_conv", "conv_kernel"});
  expect("ssm.state_size", {"mamba_d_state", "ssm_state_size"});
  expect("ssm.inner_size", {"mamba_d_ssm"});
  expect("ssm.time_step_rank", {"mamba_n_heads", "mamba_num_heads"});
  expect("ssm.group_count", {"mamba_n_groups", "n_groups"});
  expect("final_logit_softcapping", {"final_logit_softcapping"});
  expect("attn_logit_softcapping", {"attn_logit_softcapping"});
  EXPECT_EQ(values["tokenizer.ggml.model"], "none");
}

// Models whose rows are whole q8_0 blocks and whose tensors are larger than one piece of the export, unlike the golden
// models.
TEST(gguf, random_models_are_exported_tensor_by_tensor) {
  std::mt19937 random(seed_of_run());
  const auto from = [&](Index least, Index most) { return std::uniform_int_distribution<Index>(least, most)(random); };
  for (int i = 0; i < 6; ++i) {
    ModelConfig m;
    m.pattern.assign(std::size_t(from(1, 3)), 'P');
    m.vocab_size = i == 0 ? 20000 : from(8, 200), m.hidden_size = 32 * from(1, 4);
    m.attention.num_kv_heads = from(1, 3), m.attention.num_heads = m.attention.num_kv_heads * from(1, 3), m.attention.head_dim = 2 * from(1, 20);
    m.mamba.num_groups = from(1, 2), m.mamba.num_heads = m.mamba.num_groups * from(1, 4), m.mamba.head_dim = 8 * from(1, 4);
    m.mamba.state_size = from(1, 20), m.mamba.conv_kernel = from(2, 5), m.mamba.norm = from(0, 1) ? SsmNorm::gate_first : SsmNorm::none;
    for (double& x : m.mamba.multipliers) x = 0.25 * double(from(1, 9));
    m.mlp.intermediate_size = 16 * from(1, 9), m.mlp.gate_multiplier = 0.3, m.mlp.down_multiplier = 1.7;
    m.embedding_multiplier = 3.1, m.lm_head_multiplier = 0.7, m.attention.key_multiplier = 0.9, m.attention.in_multiplier = 1.1;
    m.mamba.in_multiplier = 0.4, m.mamba.out_multiplier = 2.3;
    const Folder to;
    write_model_folder(to / "model", m, from(0, 1) ? safetensors::Type::bf16 : safetensors::Type::f32, int(from(1, 3)));
    const Type type = types[i % 3];
    export_gguf(to / "model", to / "file.gguf", plain(type), {});
    expect_holds(read_file(to / "file.gguf"), FolderInGguf(to / "model", "falcon-h1").tensors, type);
  }
}

TEST(gguf, tied_head_with_other_multiplier_is_written_separately) {
  ModelConfig m = read_config_json(fs::path(GYR_SOURCE_DIR) / "regression/golden/huggingface/like_7b/config.json").model;
  m.tie_word_embeddings = true;
  const Folder to;
  write_model_folder(to / "model", m, safetensors::Type::f32);
  export_gguf(to / "model", to / "file.gguf", plain(Type::f32), {});
  const File file = read_file(to / "file.gguf");
  const auto first = [&](const char* name) {
    float x = 0;
    std::memcpy(&x, file.tensors.at(name).data.data(), sizeof x);
    return x;
  };
  EXPECT_NEAR(first("output.weight") / first("token_embd.weight"), m.lm_head_multiplier / m.embedding_multiplier, 1e-6);
}

TEST(gguf, q8_0_rounding_matches_reference_loops) {
  std::mt19937 random(seed_of_run());
  std::normal_distribution<float> normal;
  for (int i = 0; i < 200; ++i) {
    std::vector<float> x(64);
    const float scale = std::exp(4 * normal(random));
    for (float& value : x) value = scale * normal(random);
    if (i % 5 == 0) std::fill_n(x.begin(), 32, 0.f);
    if (i % 7 == 0)  // values halfway between two integers
      for (std::size_t j = 0; j < 32; ++j) x[32 + j] = j == 0 ? 127 : float(j) - 16.5f;
    std::string data;
    gguf::encode(Type::q8_0, x.data(), 64, data, "x");
    EXPECT_EQ(data, blocks_of(x));
    for (std::size_t b = 0; b < 2; ++b) {
      std::uint16_t half;
      std::memcpy(&half, data.data() + b * 34, 2);
      const double d = half_to_float(half), largest = 127.5 * d;
      for (std::size_t j = 0; j < 32; ++j) {
        const double back = d * double(static_cast<std::int8_t>(data[b * 34 + 2 + j]));
        EXPECT_LE(std::fabs(back - double(x[b * 32 + j])), d / 2 + largest * 0x1p-11 + 0x1p-18) << i;
      }
    }
  }
  std::vector<float> x(32, 1.f);
  x[7] = std::numeric_limits<float>::quiet_NaN();
  std::string data;
  const Error error = error_of([&] { gguf::encode(Type::q8_0, x.data(), 32, data, "blk.3.ffn_up.weight"); });
  EXPECT_EQ(error.code, Exit::data);
  EXPECT_NE(std::string(error.what()).find("blk.3.ffn_up.weight"), std::string::npos);
}

// ---- tokenizers ----

fs::path tokenizer_file(const std::string& name) { return fs::path(GYR_SOURCE_DIR) / "regression/golden/tokenizers" / (name + ".json"); }

// ---- ternary layers ----

std::string in_hex(const std::string& bytes) {
  std::string hex;
  for (const char byte : bytes) hex += fmt::format("{:02x}", unsigned(std::uint8_t(byte)));
  return hex;
}

// Values of blocks of tq1_0 (code 34) or tq2_0, decoded one by one from the layout in ggml's documentation.
std::vector<float> decoded(const std::string& data, std::uint32_t type) {
  std::vector<float> x;
  const std::size_t bytes = type == 34 ? 54 : 66;
  const auto trit = [&](std::uint8_t byte, int n) {  // ggml multiplies by 3^n modulo 256, then by 3, and takes the carry
    for (int i = 0; i < n; ++i) byte = std::uint8_t(byte * 3);
    return (int(byte) * 3) >> 8;
  };
  for (std::size_t b = 0; b < data.size(); b += bytes) {
    const std::string block = data.substr(b, bytes);
    std::uint16_t half;
    std::memcpy(&half, block.data() + bytes - 2, 2);
    const float d = half_to_float(half);
    for (std::size_t i = 0; i < 256; ++i) {
      const auto byte = [&](std::size_t at) { return std::uint8_t(block[at]); };
      int code;
      if (type == 35) code = byte(i / 128 * 32 + i % 32) >> (2 * (i % 128 / 32)) & 3;
      else if (i < 160) code = trit(byte(i % 32), int(i / 32));
      else if (i < 240) code = trit(byte(32 + (i - 160) % 16), int((i - 160) / 16));
      else code = trit(byte(48 + (i - 240) % 4), int((i - 240) / 4));
      x.push_back(float(code - 1) * d);
    }
  }
  return x;
}

// 256 values t_j / 2 with t_j = (7 j) mod 3 - 1. The bytes were computed with Python from ggml's description.
TEST(gguf, ternary_blocks_have_the_stated_bytes) {
  std::vector<float> x;
  for (int j = 0; j < 256; ++j) x.push_back(0.5f * float((7 * j) % 3 - 1));
  std::string tq1, tq2;
  gguf::encode(Type::tq1_0, x.data(), 256, tq1, "x"), gguf::encode(Type::tq2_0, x.data(), 256, tq2, "x");
  EXPECT_EQ(in_hex(tq1), "456ccf456ccf456ccf456ccf456ccf456ccf456ccf456ccf456ccf456ccf456c94bb3194bb3194bb3194bb3194bb31943092bb300038");
  EXPECT_EQ(in_hex(tq2),
            "186186186186186186186186186186186186186186186186186186186186186186186186186186186186186186186186186186186186186186186186186186180038");
}

TEST(gguf, drawn_ternary_blocks_decode_to_their_values) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 40; ++draw) {
    const float scale = float(1 + random() % 2000) / 1024;  // exact in half precision
    std::vector<float> x(256 * (1 + random() % 3));
    for (float& v : x) v = scale * float(int(random() % 3) - 1);
    for (const Type type : {Type::tq1_0, Type::tq2_0}) {
      std::string data;
      gguf::encode(type, x.data(), Index(x.size()), data, "x");
      EXPECT_EQ(decoded(data, std::uint32_t(type)), x);
    }
  }
  std::vector<float> bad(256, 1);
  bad[7] = std::numeric_limits<float>::quiet_NaN();
  std::string data;
  EXPECT_THROW(gguf::encode(Type::tq2_0, bad.data(), 256, data, "x"), Error);
}

bool is_ternary_tensor(const std::string& name) {
  for (const char* part : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
    if (name.ends_with(std::string(part) + ".weight")) return true;
  return false;
}

// Rows of down_proj are no whole blocks, and the file has it in half precision.
fs::path ternary_folder(const Folder& to) {
  HuggingFaceConfig config = read_config_json(fs::path(GYR_SOURCE_DIR) / "regression/golden/families/llama_ternary" / config_file_name);
  config.model.hidden_size = 256, config.model.mlp.intermediate_size = 320;
  config.model.attention.num_heads = 16, config.model.attention.num_kv_heads = 2, config.model.attention.head_dim = 16;
  return written_folder(config, to);
}

// Every tensor of a ternary layer has the values -d, 0 and d, with d the mean magnitude of the weight.
TEST(gguf, ternary_layers_are_written_as_quantized_values) {
  const Folder to;
  const fs::path model = ternary_folder(to);
  auto expected = FolderInGguf(model, "llama").tensors;
  for (auto& [name, e] : expected) {
    if (!is_ternary_tensor(name)) continue;
    double sum = 0;
    for (const float x : e.x) sum += std::abs(double(x));
    const double mean = sum / double(e.x.size());
    for (float& x : e.x) x = float(std::min(std::max(std::nearbyint(double(x) / mean), -1.0), 1.0) * mean);
  }
  for (const Type type : {Type::f32, Type::tq1_0, Type::tq2_0}) {
    GgufOptions options = plain(type);
    options.overwrite = true;
    export_gguf(model, to / "file.gguf", options, {});
    const File file = read_file(to / "file.gguf");
    EXPECT_EQ(file.values["general.file_type"], type == Type::f32 ? 0 : type == Type::tq1_0 ? 36 : 37);
    EXPECT_EQ(file.tensors.size(), expected.size());
    int blocks = 0;
    for (const auto& [name, e] : expected) {
      const Stored& t = file.tensors.at(name);
      const bool in_blocks = type != Type::f32 && is_ternary_tensor(name) && e.shape.back() % 256 == 0;
      blocks += in_blocks;
      EXPECT_EQ(t.type, e.shape.size() < 2 || type == Type::f32 ? 0u : in_blocks ? std::uint32_t(type) : 1u) << name;
      if (t.type != std::uint32_t(type) || type == Type::f32) {
        std::vector<float> x(e.x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
          if (t.type == 0) std::memcpy(&x[i], t.data.data() + 4 * i, 4);
          std::uint16_t half;
          if (t.type == 1) std::memcpy(&half, t.data.data() + 2 * i, 2), x[i] = half_to_float(half);
          ASSERT_NEAR(x[i], e.x[i], (t.type == 0 ? 1e-6f : 1e-3f) * std::max(1.0f, std::abs(e.x[i]))) << name << " " << i;
        }
        continue;
      }
      const std::vector<float> x = decoded(t.data, t.type);
      ASSERT_EQ(x.size(), e.x.size()) << name;
      for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], e.x[i], 1e-3f * std::abs(e.x[i])) << name << " " << i;
    }
    EXPECT_EQ(blocks, type == Type::f32 ? 0 : 12);
  }
}

TEST(gguf, ternary_types_need_ternary_layers) {
  const Folder to;
  const fs::path model = copy_weights_only(fs::path(GYR_SOURCE_DIR) / "regression/golden/families/llama", to);
  try {
    export_gguf(model, to / "file.gguf", plain(Type::tq2_0), {});
    ADD_FAILURE() << "is exported";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Exit::config);
    EXPECT_NE(std::string(e.what()).find("has no ternary layers (model.linear is full)"), std::string::npos) << e.what();
  }
  EXPECT_FALSE(fs::exists(to / "file.gguf"));
}

TEST(gguf, pre_tokenizer_rules_have_llama_cpp_names) {
  for (const auto& [file, rule] : std::map<std::string, std::string>{{"gpt2", "gpt-2"},
                                                                     {"llama3", "llama-bpe"},
                                                                     {"qwen", "qwen2"},
                                                                     {"falcon_h1", "falcon-h1"},
                                                                     {"falcon3", "falcon"},
                                                                     {"o200k", "gpt-4o"},
                                                                     {"deepseek", ""},
                                                                     {"ours", "gpt-2"},
                                                                     {"odd", ""}})
    EXPECT_EQ(gguf::split_rule_of(Tokenizer::load(tokenizer_file(file)).vocabulary()), rule) << file;
}

// The tokenizer file `name` with changes.
template <class Change>
Tokenizer changed_tokenizer(const std::string& name, Change&& change) {
  json file = json::parse(contents(tokenizer_file(name)));
  change(file);
  const Folder folder;
  return Tokenizer::load(folder.write("tokenizer.json", file.dump()));
}

TEST(gguf, pre_tokenizer_rule_depends_on_ignored_merges) {
  for (const bool ignores : {false, true}) {
    const Tokenizer tokenizer = changed_tokenizer("llama3", [&](json& file) { file["model"]["ignore_merges"] = ignores; });
    EXPECT_EQ(gguf::split_rule_of(tokenizer.vocabulary()), ignores ? "llama-bpe" : "smaug-bpe");
  }
}

// llama.cpp appends the end token of the model. If the tokenizer appends another token, it must append none.
TEST(gguf, only_the_end_token_is_appended) {
  for (const std::int32_t appended : {2, 1200})
    for (const std::int32_t end : {2, 1200}) {
      const Tokenizer tokenizer = changed_tokenizer("llama3", [&](json& file) {
        const std::string text = appended == 2 ? "<|endoftext|>" : "<|eot|>";
        json& rule = file["post_processor"]["processors"][1];
        rule["single"] = {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, {{"SpecialToken", {{"id", text}, {"type_id", 0}}}}};
        rule["special_tokens"] = {{text, {{"id", text}, {"ids", {appended}}, {"tokens", {text}}}}};
      });
      HuggingFaceConfig config;
      config.model.vocab_size = tokenizer.size();
      const Companions companions{{"config.json", fmt::format("{{\"eos_token_id\": {}}}", end)}};
      gguf::Keys keys("llama");
      std::string notes;
      gguf::put_vocabulary({tokenizer, "llama3", "", companions, config}, tokenizer.size(), keys, [&](const std::string& note) { notes += note; });
      std::map<std::string, gguf::Value> values;
      for (const auto& [key, value] : keys.all()) values[key] = value;
      EXPECT_EQ(std::get<std::uint32_t>(values.at("tokenizer.ggml.eos_token_id")), std::uint32_t(end));
      EXPECT_EQ(std::get<bool>(values.at("tokenizer.ggml.add_eos_token")), appended == end) << appended << " " << end;
      EXPECT_EQ(notes.find("adds tokens after a text") == std::string::npos, appended == end) << notes;
    }
}

TEST(gguf, file_holds_every_token_of_the_tokenizer) {
  for (const std::string name : {"gpt2", "llama3", "qwen", "falcon_h1"}) {
    const json file = json::parse(contents(tokenizer_file(name)));
    const Tokenizer tokenizer = Tokenizer::load(tokenizer_file(name));
    const Index size = tokenizer.size() + 3;
    HuggingFaceConfig config;
    config.model.vocab_size = size, config.end_tokens = {5};
    const Companions companions{{"config.json", R"({"bos_token_id": 4, "eos_token_id": 6})"}, {"chat_template.jinja", "{{ messages }}"}};
    gguf::Keys keys("llama");
    gguf::put_vocabulary({tokenizer, name, "", companions, config}, size, keys, {});
    std::map<std::string, gguf::Value> values;
    for (const auto& [key, value] : keys.all()) values[key] = value;
    const auto& tokens = std::get<std::vector<std::string>>(values.at("tokenizer.ggml.tokens"));
    const auto& kinds = std::get<std::vector<std::int32_t>>(values.at("tokenizer.ggml.token_type"));
    ASSERT_EQ(Index(tokens.size()), size);
    ASSERT_EQ(Index(kinds.size()), size);
    std::map<std::size_t, std::pair<std::string, bool>> added;
    for (const json& token : file["added_tokens"]) added[token["id"]] = {token["content"], token["special"]};
    for (const auto& [token, id] : file["model"]["vocab"].items())
      if (!added.contains(id)) {
        EXPECT_EQ(tokens[id], token);
        EXPECT_EQ(kinds[id], 1);
      }
    for (const auto& [id, token] : added) {
      EXPECT_EQ(tokens[id], token.first);
      EXPECT_TRUE(!token.second || kinds[id] == 3) << token.first;
    }
    EXPECT_EQ(tokens.back(), fmt::format("[PAD{}]", size - 1));
    EXPECT_EQ(kinds.back(), 5);
    const auto& merges = std::get<std::vector<std::string>>(values.at("tokenizer.ggml.merges"));
    ASSERT_EQ(merges.size(), file["model"]["merges"].size());
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const json& merge = file["model"]["merges"][i];
      EXPECT_EQ(merges[i], merge.is_string() ? merge.get<std::string>() : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    }
    EXPECT_EQ(std::get<std::uint32_t>(values.at("tokenizer.ggml.eos_token_id")), 6u);
    EXPECT_EQ(std::get<std::string>(values.at("tokenizer.chat_template")), "{{ messages }}");
    // add_bos_token agrees with the token that the tokenizer puts in front of a text.
    const auto ids = tokenizer.encode("x", Tokenizer::Specials::complete), bare = tokenizer.encode("x", Tokenizer::Specials::as_text);
    const bool begins = std::get<bool>(values.at("tokenizer.ggml.add_bos_token"));
    EXPECT_EQ(ids.front(), begins ? std::int32_t(std::get<std::uint32_t>(values.at("tokenizer.ggml.bos_token_id"))) : bare.front()) << name;
  }
}

// Values of the keys that export-gguf writes for a golden tokenizer.
std::map<std::string, gguf::Value> vocabulary_keys(const std::string& name, const Tokenizer& tokenizer, const Note& note = {}) {
  gguf::Keys keys("llama");
  gguf::put_vocabulary({tokenizer, name, "", {}, {}}, tokenizer.size(), keys, note);
  std::map<std::string, gguf::Value> values;
  for (const auto& [key, value] : keys.all()) values[key] = value;
  return values;
}

// llama.cpp's SentencePiece algorithm (llm_tokenizer_spm) for a text between special tokens: merges the adjacent pair
// whose joined text is the token of the highest score, of equal scores the leftmost.
std::vector<std::int32_t> ids_of_llama_cpp(const std::map<std::string, gguf::Value>& keys, std::string text) {
  const auto& tokens = std::get<std::vector<std::string>>(keys.at("tokenizer.ggml.tokens"));
  const auto& scores = std::get<std::vector<float>>(keys.at("tokenizer.ggml.scores"));
  std::map<std::string, std::int32_t> ids;
  for (std::size_t id = 0; id < tokens.size(); ++id) ids.emplace(tokens[id], std::int32_t(id));
  if (std::get<bool>(keys.at("tokenizer.ggml.add_space_prefix"))) text.insert(0, " ");
  std::vector<std::string> symbols;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_at(text, at).length;
    symbols.push_back(text[at] == ' ' ? "\u2581" : text.substr(at, length));
    at += length;
  }
  for (;;) {
    std::size_t best = symbols.size();
    float score = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
      if (const auto token = ids.find(symbols[i] + symbols[i + 1]); token != ids.end())
        if (const float s = scores[std::size_t(token->second)]; best == symbols.size() || s > score) best = i, score = s;
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + std::ptrdiff_t(best) + 1);
  }
  std::vector<std::int32_t> result;
  for (const std::string& symbol : symbols) {
    if (const auto token = ids.find(symbol); token != ids.end()) result.push_back(token->second);
    else
      for (const char c : symbol) result.push_back(ids.at(fmt::format("<0x{:02X}>", unsigned(static_cast<unsigned char>(c)))));
  }
  return result;
}

TEST(gguf, sentencepiece_scores_merge_like_the_tokenizer) {
  Dice dice(seed_of_run());
  const std::vector<std::string> parts{"a",  "e", "t", "th", "he",     "in",     "ing",        " ", " ",          "s",  "er",
                                       "or", ".", ",", "1",  "\u00e9", "\u6771", "\U0001f600", "x", "the falcon", "\n", "-"};
  for (const std::string name : {"llama2", "mistral", "gemma", "phi3"}) {
    const Tokenizer tokenizer = Tokenizer::load(tokenizer_file(name));
    std::vector<std::string> notes;
    const auto keys = vocabulary_keys(name, tokenizer, [&](const std::string& text) { notes.push_back(text); });
    EXPECT_EQ(notes.size(), name == "mistral" ? 1u : 0u);
    EXPECT_EQ(std::get<std::string>(keys.at("tokenizer.ggml.model")), "llama");
    EXPECT_EQ(std::get<bool>(keys.at("tokenizer.ggml.add_space_prefix")), name != "gemma");
    EXPECT_TRUE(std::get<bool>(keys.at("tokenizer.ggml.add_bos_token")));
    const auto& kinds = std::get<std::vector<std::int32_t>>(keys.at("tokenizer.ggml.token_type"));
    EXPECT_EQ(std::ranges::count(kinds, 6), 256) << name;
    EXPECT_EQ(kinds[std::get<std::uint32_t>(keys.at("tokenizer.ggml.unknown_token_id"))], 2) << name;
    for (int i = 0; i < 300; ++i) {
      std::string text = "the";  // Mistral's tokenizer inserts no space before a space, and a note says so
      for (int n = dice.between(1, 40); n > 0; --n) {
        const std::string part = dice.one_of(parts);
        if (text.back() != part[0]) text += part;  // no runs, which are tokens of their own in Gemma
      }
      EXPECT_EQ(ids_of_llama_cpp(keys, text), tokenizer.encode(text)) << name << " " << json(text);
    }
  }
}

TEST(gguf, tokenizers_without_sentencepiece_rules_are_refused) {
  const auto refused = [](const std::string& name, const std::string& why) {
    const Tokenizer tokenizer = Tokenizer::load(tokenizer_file(name));
    const Error error = error_of([&] { vocabulary_keys(name, tokenizer); });
    EXPECT_EQ(error.code, Exit::data);
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("--no-tokenizer"), std::string::npos) << error.what();
  };
  refused("some_bytes", "has no token for byte 0");
  refused("no_unknown", "has no token for byte 0");
  refused("odd_merges", "has no token for byte");
  const auto changed = [](const std::function<void(json&)>& change, const std::string& why) {
    json file = json::parse(contents(tokenizer_file("llama2")));
    change(file);
    const Tokenizer tokenizer = Tokenizer::parse(file.dump(), "changed");
    const Error error = error_of([&] { vocabulary_keys("changed", tokenizer); });
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
  };
  changed([](json& f) { f["normalizer"] = nullptr; }, "does not spell spaces as U+2581");
  changed([](json& f) { f["pre_tokenizer"] = {{"type", "Whitespace"}}; }, "its pre-tokenizer splits the text");
  changed([](json& f) { f["model"]["ignore_merges"] = true; }, "ignores the merges");
  changed([](json& f) { f["model"]["merges"].erase(40); }, "are not merged");
  changed(
      [](json& f) {  // moves the second merge of a token to the end
        std::set<std::string> results;
        json& merges = f["model"]["merges"];
        for (std::size_t i = 0; i < merges.size(); ++i) {
          std::string joined = merges[i];
          joined.erase(joined.find(' '), 1);
          if (results.insert(joined).second) continue;
          const json merge = merges[i];
          merges.erase(i);
          return merges.push_back(merge);
        }
      },
      "different ranks");
}

// ---- exports that are refused ----

void expect_refused(const fs::path& model, const GgufOptions& options, Exit code, const std::string& why) {
  const Folder to;
  const Error error = error_of([&] { export_gguf(model, to / "file.gguf", options, {}); });
  EXPECT_EQ(error.code, code) << error.what();
  EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what() << "\n  should contain: " << why;
  EXPECT_EQ(to.files(), 0u) << "the failed export left files behind";
}

TEST(gguf, models_unsupported_by_llama_cpp_are_refused) {
  const fs::path golden = fs::path(GYR_SOURCE_DIR) / "regression/golden";
  const GgufOptions options = plain(Type::f32);
  expect_refused(golden / "families/bert", options, Exit::config, "BertForMaskedLM");
  expect_refused(golden / "families/t5", options, Exit::config, "T5ForConditionalGeneration");
  expect_refused(golden / "families/bamba", options, Exit::config, "BambaForCausalLM");
  expect_refused(golden / "huggingface/norm_first_one_group", options, Exit::config, "mamba_norm_before_gate");
  expect_refused(golden / "huggingface/attention_mlp_biases", options, Exit::config, "attention biases");
  expect_refused(golden / "families/llama_dynamic", options, Exit::config, "rope_type dynamic");
  expect_refused(golden / "families/llama_yarn", options, Exit::config, "rope_type yarn");
  expect_refused(golden / "families/gpt_oss", options, Exit::config, "GptOssForCausalLM");
  expect_refused(golden / "families/qwen3_biases", options, Exit::config, "attention_bias");
  expect_refused(golden / "families/qwen3_moe", options, Exit::config, "MoE and dense layers");
  expect_refused(golden / "families/gemma2", options, Exit::config, "query_pre_attn_scalar");
  expect_refused(golden / "families/mamba2_biases", options, Exit::config, "biases on a mixer");
}

TEST(gguf, existing_file_is_kept_without_overwrite) {
  const fs::path model = fs::path(GYR_SOURCE_DIR) / "regression/golden/huggingface/like_7b";
  const Folder to;
  put_contents(to / "file.gguf", "a thesis");
  EXPECT_EQ(error_of([&] { export_gguf(model, to / "file.gguf", plain(Type::f32), {}); }).code, Exit::usage);
  EXPECT_EQ(contents(to / "file.gguf"), "a thesis");
  export_gguf(model, to / "new/folder/file.gguf", plain(Type::f32), {});
  EXPECT_GT(fs::file_size(to / "new/folder/file.gguf"), 0u);
  fs::remove_all(to / "new");
  GgufOptions options = plain(Type::f32);
  options.no_tokenizer = false;
  const Error error = error_of([&] { export_gguf(model, to / "other.gguf", options, {}); });
  EXPECT_EQ(error.code, Exit::usage);
  EXPECT_NE(std::string(error.what()).find("--no-tokenizer"), std::string::npos) << error.what();
  options.tokenizer = tokenizer_file("gpt2");  // this tokenizer has more tokens than the model
  EXPECT_EQ(error_of([&] { export_gguf(model, to / "other.gguf", options, {}); }).code, Exit::data);
  EXPECT_EQ(to.files(), 1u);
}

}  // namespace
}  // namespace gyr::testing::gguf_suite
