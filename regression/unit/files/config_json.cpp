// SPDX-License-Identifier: BSD-3-Clause
// Every spelling of config.json gives the same model, unsupported settings are refused by key, and a written file reads
// back unchanged.
#include "src/huggingface/config_json.hpp"

#include <nlohmann/json.hpp>
#include <random>

#include "regression/support/cases.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::config_json_suite {
namespace {

using Json = nlohmann::json;

// The published 0.5B model, as transformers 4.5x writes it.
Json early() {
  return Json::parse(R"({"architectures":["FalconH1ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"attention_in_multiplier":1.0,
    "attention_out_multiplier":0.9375,"attn_layer_indices":null,"bos_token_id":1,"embedding_multiplier":5.656854249492381,"eos_token_id":11,
    "expansion_factor":3.0,"head_dim":64,"hidden_act":"silu","hidden_size":1024,"initializer_range":0.02,"intermediate_size":2048,
    "key_multiplier":0.39062499999999994,"lm_head_multiplier":0.0390625,"mamba_chunk_size":128,"mamba_conv_bias":true,"mamba_d_conv":4,
    "mamba_d_head":64,"mamba_d_ssm":1536,"mamba_d_state":128,"mamba_expand":2,"mamba_n_groups":1,"mamba_n_heads":24,
    "mamba_norm_before_gate":false,"mamba_proj_bias":false,"mamba_rms_norm":false,"mamba_use_mlp":true,"max_position_embeddings":16384,
    "mlp_bias":false,"mlp_expansion_factor":8,"mlp_multipliers":[0.8838834764831844,0.5859375],"model_type":"falcon_h1",
    "num_attention_heads":8,"num_hidden_layers":36,"num_key_value_heads":2,"num_logits_to_keep":1,"pad_token_id":0,"projectors_bias":false,
    "rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":100000000000.0,"sliding_window":null,"ssm_in_multiplier":1.25,
    "ssm_multipliers":[0.3535533905932738,0.25,0.3535533905932738,0.5,0.3535533905932738],"ssm_out_multiplier":0.23570226039551587,
    "tie_word_embeddings":false,"time_step_floor":0.0001,"time_step_max":0.1,"time_step_min":0.001,"torch_dtype":"bfloat16",
    "transformers_version":"4.52.0","use_cache":true,"vocab_size":32784})");
}
HuggingFaceConfig parse(const Json& json) { return parse_config_json(json.dump(), "config.json"); }
std::string text_of(const HuggingFaceConfig& c) { return write_config_json(c); }  // the written text includes every field

void expect_refused(const std::string& text, const std::string& why) {
  const Error error = error_of([&] { parse_config_json(text, "config.json"); });
  EXPECT_EQ(error.code, Exit::data) << error.what();
  EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what() << "\n  should contain: " << why;
  EXPECT_EQ(std::string(error.what()).rfind("config.json: ", 0), 0u) << error.what();
  EXPECT_LT(std::string(error.what()).size(), 400u) << error.what();
}
void expect_refused(const std::string& key, const Json& value, const std::string& why) {
  Json json = early();
  json[key] = value;
  expect_refused(json.dump(), why);
}

TEST(config_json, published_model_is_read_correctly) {
  const HuggingFaceConfig c = parse(early());
  const ModelConfig& m = c.model;
  EXPECT_EQ(m.pattern, std::string(36, 'P'));
  EXPECT_EQ(m.vocab_size, 32784);
  EXPECT_EQ(m.hidden_size, 1024);
  EXPECT_EQ(m.pad_token_id, 0);
  EXPECT_FALSE(m.tie_word_embeddings);
  EXPECT_EQ(m.embedding_multiplier, 5.656854249492381);
  EXPECT_EQ(m.lm_head_multiplier, 0.0390625);
  EXPECT_EQ(m.attention.num_heads, 8);
  EXPECT_EQ(m.attention.num_kv_heads, 2);
  EXPECT_EQ(m.attention.head_dim, 64);
  EXPECT_EQ(m.attention.rope_theta, 1e11);
  EXPECT_EQ(m.attention.key_multiplier, 0.39062499999999994);
  EXPECT_EQ(m.attention.out_multiplier, 0.9375);
  EXPECT_EQ(m.mamba.num_heads, 24);
  EXPECT_EQ(m.mamba.head_dim, 64);
  EXPECT_EQ(m.mamba.norm, SsmNorm::none);
  EXPECT_EQ(m.mamba.multipliers[2], 0.3535533905932738);
  EXPECT_EQ(m.mamba.in_multiplier, 1.25);
  EXPECT_EQ(m.mamba.chunk_size, 128);
  EXPECT_TRUE(std::isinf(m.mamba.dt_high));
  EXPECT_EQ(m.mlp.intermediate_size, 2048);
  EXPECT_EQ(m.mlp.gate_multiplier, 0.8838834764831844);
  EXPECT_EQ(m.mlp.down_multiplier, 0.5859375);
  EXPECT_EQ(c.dtype, "bfloat16");
  EXPECT_EQ(c.positions, 16384);
  EXPECT_EQ(c.begin_token, 1);
  EXPECT_EQ(c.end_tokens, std::vector<Index>{11});
  EXPECT_TRUE(c.notes.empty()) << c.notes.front();
}

TEST(config_json, spellings_of_all_versions_give_one_model) {
  const std::string wanted = text_of(parse(early()));
  const auto same = [&](const char* what, const std::function<void(Json&)>& change) {
    Json json = early();
    change(json);
    EXPECT_EQ(text_of(parse(json)), wanted) << what;
  };
  same("rope_parameters", [](Json& j) { j.erase("rope_theta"), j["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e11}}; });
  same("the inner base takes precedence", [](Json& j) {
    j["rope_theta"] = 1e4, j["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e11}};
  });
  same("type next to base", [](Json& j) { j["rope_parameters"] = {{"type", "default"}}; });
  same("default scaling", [](Json& j) { j["rope_scaling"] = {{"rope_type", "default"}}; });
  same("integer base", [](Json& j) { j["rope_theta"] = 100000000000; });
  same("dtype", [](Json& j) { j.erase("torch_dtype"), j["dtype"] = "bfloat16"; });
  same("both dtypes", [](Json& j) { j["torch_dtype"] = "float32", j["dtype"] = "bfloat16"; });
  same("torch.", [](Json& j) { j["torch_dtype"] = "torch.bfloat16"; });
  same("auto", [](Json& j) { j["mamba_d_head"] = "auto"; });
  same("no mamba_d_head", [](Json& j) { j.erase("mamba_d_head"); });
  same("swish", [](Json& j) { j["hidden_act"] = "swish"; });
  same("spelled infinity", [](Json& j) { j["time_step_limit"] = {0.0, {{"__float__", "Infinity"}}}; });
  same("null limit", [](Json& j) { j["time_step_limit"] = nullptr; });
  same("layer types", [](Json& j) { j["layer_types"] = std::vector<std::string>(36, "hybrid"); });
  same("list of one end token", [](Json& j) { j["eos_token_id"] = {11}; });
  // The bare word Infinity is not valid JSON. It is put into the text by hand, next to a string that also contains it.
  Json json = early();
  json["time_step_limit"] = "LIMIT";
  json["_name_or_path"] = "\\\"[NaN, Infinity]\\";
  std::string text = json.dump();
  text.replace(text.find("\"LIMIT\""), 7, "[0.0, Infinity]");
  EXPECT_EQ(text_of(parse_config_json(text, "x")), wanted);
}

TEST(config_json, missing_keys_take_default_values) {
  const HuggingFaceConfig c = parse({{"model_type", "falcon_h1"}, {"rope_theta", 1e5}});
  EXPECT_EQ(c.model.vocab_size, 128000);
  EXPECT_EQ(c.model.hidden_size, 4096);
  EXPECT_EQ(c.model.layers(), 32);
  EXPECT_EQ(c.model.attention.num_heads, 32);
  EXPECT_EQ(c.model.attention.num_kv_heads, 8);
  EXPECT_EQ(c.model.attention.head_dim, 128);
  EXPECT_EQ(c.model.mlp.intermediate_size, 14336);
  EXPECT_EQ(c.model.mamba.num_heads, 128);
  EXPECT_EQ(c.model.mamba.inner(), 1024);
  EXPECT_EQ(c.model.mamba.state_size, 256);
  EXPECT_EQ(c.model.mamba.chunk_size, 256);
  EXPECT_EQ(c.model.pad_token_id, 0);
  EXPECT_EQ(c.dtype, "");
  EXPECT_EQ(c.begin_token, 1);
  EXPECT_EQ(c.end_tokens, std::vector<Index>{2});

  Json json = early();
  json["mamba_d_ssm"] = nullptr;  // default: mamba_expand * hidden_size
  json["mamba_d_head"] = "auto";
  json["num_key_value_heads"] = nullptr;
  json.erase("head_dim");
  json["pad_token_id"] = json["bos_token_id"] = json["eos_token_id"] = nullptr;
  json["ssm_multipliers"] = json["mlp_multipliers"] = nullptr;
  json["mamba_n_heads"] = 16;
  const HuggingFaceConfig n = parse(json);
  EXPECT_EQ(n.model.mamba.inner(), 2048);
  EXPECT_EQ(n.model.mamba.head_dim, 128);
  EXPECT_EQ(n.model.attention.num_kv_heads, 8);
  EXPECT_EQ(n.model.attention.head_dim, 128);
  EXPECT_EQ(n.model.pad_token_id, -1);
  EXPECT_FALSE(n.begin_token.has_value());
  EXPECT_TRUE(n.end_tokens.empty());
  EXPECT_EQ(n.model.mamba.multipliers[0], 1);
}

TEST(config_json, gated_norm_keys_select_norm_order) {
  for (const auto& [rms, before, norm] : std::vector<std::tuple<bool, bool, SsmNorm>>{
           {false, true, SsmNorm::none}, {false, false, SsmNorm::none}, {true, true, SsmNorm::norm_first}, {true, false, SsmNorm::gate_first}}) {
    Json json = early();
    json["mamba_rms_norm"] = rms, json["mamba_norm_before_gate"] = before;
    EXPECT_EQ(parse(json).model.mamba.norm, norm);
  }
  Json json = early();
  json["mamba_rms_norm"] = true;
  json.erase("mamba_norm_before_gate");
  EXPECT_EQ(parse(json).model.mamba.norm, SsmNorm::norm_first);
}

TEST(config_json, written_config_reads_back_unchanged) {
  for (const Case& c : cases()) {
    HuggingFaceConfig config;
    config.model = c.model;
    config.model.mamba.dt_init_low = 0.002;
    config.dtype = "float32", config.begin_token = 3, config.end_tokens = {4, 5}, config.positions = 777;
    const std::string text = write_config_json(config);
    const HuggingFaceConfig back = parse_config_json(text, "written");
    EXPECT_EQ(write_config_json(back), text) << c.name;
    EXPECT_TRUE(back.notes.empty() || c.name == "T8") << c.name << " " << back.notes.front();
    EXPECT_EQ(back.model.pattern, c.model.pattern);
    EXPECT_EQ(back.model.mamba.dt_low, c.model.mamba.dt_low);
    EXPECT_EQ(back.model.mamba.dt_high, c.model.mamba.dt_high);
    EXPECT_EQ(back.model.mamba.norm, c.model.mamba.norm);
    EXPECT_EQ(back.model.pad_token_id, c.model.pad_token_id);
    EXPECT_EQ(back.model.tie_word_embeddings, c.model.tie_word_embeddings);
    EXPECT_EQ(back.end_tokens, config.end_tokens);
    const Json json = Json::parse(text);  // strict JSON with the keys that every version of transformers reads
    EXPECT_EQ(json["rope_theta"], c.model.attention.rope_theta);
    EXPECT_EQ(json["rope_parameters"]["rope_theta"], c.model.attention.rope_theta);
    EXPECT_EQ(json["rope_parameters"]["rope_type"], "default");
    EXPECT_EQ(json["head_dim"], c.model.attention.head_dim);
    EXPECT_EQ(json["dtype"], "float32");
    EXPECT_EQ(json["torch_dtype"], "float32");
  }
  HuggingFaceConfig half_open;
  half_open.model = named("T1").model;
  half_open.model.mamba.dt_low = 0.01;
  EXPECT_EQ(parse_config_json(write_config_json(half_open), "written").model.mamba.dt_low, 0.01);
  EXPECT_TRUE(std::isinf(parse_config_json(write_config_json(half_open), "written").model.mamba.dt_high));
}

TEST(config_json, unsupported_pattern_is_not_written) {
  HuggingFaceConfig config;
  config.model = named("T1").model;
  config.model.pattern = "PM";
  const Error error = error_of([&] { write_config_json(config); });
  EXPECT_EQ(error.code, Exit::config);
  EXPECT_NE(std::string(error.what()).find("model.pattern is PM"), std::string::npos) << error.what();
}

TEST(config_json, unsupported_functions_are_refused_naming_the_key) {
  expect_refused("model_type", "opt", "model_type is \"opt\"; supported are \"falcon_h1\"");
  expect_refused("model_type", 5, "model_type is 5");
  expect_refused("hidden_act", "gelu", "hidden_act is \"gelu\"");
  expect_refused("hidden_act", 1, "hidden_act is 1, which is not a string");
  expect_refused("rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}, "rope_scaling.rope_type is \"yarn\"");
  expect_refused("rope_parameters", {{"rope_type", "dynamic"}, {"factor", 1.5}, {"rope_theta", 1e4}}, "rope_parameters.rope_type is \"dynamic\"");
  expect_refused("rope_scaling", {{"type", "linear"}}, "rope_scaling.type is \"linear\"");
  expect_refused("rope_scaling", {{"rope_type", "default"}, {"factor", 2.0}}, "rope_scaling.factor is 2.0");
  expect_refused("rope_scaling", "linear", "rope_scaling is \"linear\"");
  expect_refused("rope_parameters", {{"rope_type", "llama3"}, {"rope_theta", 1e4}}, "rope_parameters.rope_type is \"llama3\"");
  expect_refused("rope_parameters", {{"partial_rotary_factor", 0.5}}, "does not support partial rotary embeddings");
  expect_refused("partial_rotary_factor", 0.5, "does not support partial rotary embeddings");
  expect_refused("quantization_config", {{"quant_method", "fp8"}}, "quantized");
  expect_refused("layer_types", std::vector<std::string>(36, "mamba"), "layer_types");
  expect_refused("layer_types", std::vector<std::string>(35, "hybrid"), "layer_types");
  Json json = early();
  json.erase("rope_theta");
  expect_refused(json.dump(), "rope_theta is missing");
  json = early();
  json.erase("model_type");
  expect_refused(json.dump(), "model_type is missing");
}

TEST(config_json, wrong_types_and_values_name_the_key) {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                          "head_dim", "mamba_d_ssm", "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv",
                          "mamba_expand", "mamba_chunk_size", "max_position_embeddings"})
    for (const Json& bad : {Json("12"), Json(1.5), Json(true), Json::array({1}), Json::object(), Json(0), Json(-1), Json(INT64_MIN), Json(INT64_MAX),
                            Json(UINT64_MAX), Json(1e300)})
      expect_refused(key, bad, std::string(key) + " is ");
  for (const char* key :
       {"rms_norm_eps", "initializer_range", "rope_theta", "lm_head_multiplier", "embedding_multiplier", "key_multiplier", "attention_in_multiplier",
        "attention_out_multiplier", "ssm_in_multiplier", "ssm_out_multiplier", "attention_dropout", "time_step_min", "time_step_max"})
    for (const Json& bad : {Json("1"), Json(true), Json::array({1.0}), Json({{"__float__", "Infinity"}}), Json({{"__float__", "NaN"}})})
      expect_refused(key, bad, std::string(key) + " is ");
  for (const char* key : {"rms_norm_eps", "initializer_range", "rope_theta", "attention_dropout", "time_step_min"})
    expect_refused(key, -1.0, std::string(key) + " is ");
  for (const char* key : {"tie_word_embeddings", "attention_bias", "mlp_bias", "projectors_bias", "mamba_proj_bias", "mamba_conv_bias",
                          "mamba_rms_norm", "mamba_norm_before_gate"})
    for (const Json& bad : {Json(1), Json("true"), Json(nullptr)}) expect_refused(key, bad, std::string(key) + " is ");
  for (const char* key : {"pad_token_id", "bos_token_id", "eos_token_id"})
    for (const Json& bad : {Json(-1), Json(32784), Json("x"), Json(1.0)}) expect_refused(key, bad, std::string(key) + " is ");
  expect_refused("eos_token_id", {1, -2}, "eos_token_id is -2");
  expect_refused("ssm_multipliers", {1, 1, 1, 1}, "ssm_multipliers is ");
  expect_refused("ssm_multipliers", {1, 1, 1, 1, "x"}, "ssm_multipliers is ");
  expect_refused("mlp_multipliers", 1, "mlp_multipliers is ");
  expect_refused("time_step_limit", {1, 0}, "time_step_limit is ");
  expect_refused("time_step_limit", {0}, "time_step_limit is ");
  expect_refused("time_step_limit", {0, "inf"}, "time_step_limit is ");
  expect_refused("torch_dtype", "int8", "torch_dtype is \"int8\"");
  expect_refused("torch_dtype", 7, "torch_dtype is 7");
  expect_refused("mamba_n_heads", 7, "mamba_n_heads is 7");
  expect_refused("mamba_d_head", 32, "mamba_d_head is 32");
  expect_refused("num_key_value_heads", 3, "num_kv_heads must divide");
  expect_refused("head_dim", 63, "even head_dim");
  expect_refused("mamba_n_groups", 5, "groups must divide");
  expect_refused("num_attention_heads", 1 << 20, "num_attention_heads times head_dim");
  Json wide = early();
  wide["mamba_d_state"] = 1 << 22, wide["mamba_n_groups"] = 2;
  expect_refused(wide.dump(), "mamba_n_groups times mamba_d_state");
}

TEST(config_json, broken_files_are_refused) {
  expect_refused("", "not valid JSON");
  expect_refused("{", "not valid JSON");
  expect_refused("[]", "not a JSON object");
  expect_refused(std::string("{}\0", 3), "zero byte");
  expect_refused("\xff", "not valid JSON");
  expect_refused(R"({"model_type":"falcon_h1","model_type":"falcon_h1"})", "given twice");
  expect_refused(R"({"model_type":"falcon_h1","rope_theta":1e400})", "not valid JSON");
  expect_refused(R"({"model_type":"falcon_h1","rope_theta":NaN})", "rope_theta is ");
  expect_refused(R"({"model_type":"falcon_h1","rope_theta":Infinity})", "rope_theta is infinite");
  expect_refused(R"({"model_type":"falcon_h1","rope_theta":-Infinity})", "rope_theta is infinite");
  expect_refused(R"({Infinity:1})", "not valid JSON");
  expect_refused("{\"a\":" + std::string(100000, '['), "nested deeper");
  expect_refused(std::string((1 << 20) + 1, ' '), "the maximum is");
  const Folder folder;
  EXPECT_EQ(error_of([&] { read_config_json(folder / "absent"); }).code, Exit::missing);
  folder.write("big", std::string((1 << 20) + 1, ' '));
  EXPECT_EQ(error_of([&] { read_config_json(folder / "big"); }).code, Exit::data);
}

TEST(config_json, ignored_keys_are_reported) {
  const auto notes = [](const std::string& key, const Json& value) {
    Json json = early();
    json[key] = value;
    return parse(json).notes;
  };
  ASSERT_EQ(notes("frobnicate\n", 1).size(), 1u);
  EXPECT_NE(notes("frobnicate\n", 1)[0].find("`frobnicate\\x0a`"), std::string::npos);
  EXPECT_TRUE(notes("attention_dropout", 0.1).empty());  // attention_dropout is supported
  EXPECT_EQ(notes("time_step_limit", {0.1, 0.2}).size(), 1u);
  EXPECT_EQ(notes("rope_parameters", {{"rope_theta", 5.0}}).size(), 1u);
  EXPECT_TRUE(notes("transformers_version", "9.9").empty());
  EXPECT_TRUE(notes("temperature", 1.0).empty());
  Json json = early();
  for (const char* key : {"frob", "nicate", "do_sample", "num_beams", "top_k", "bad_words_ids", "max_length"}) json[key] = 1;
  const auto several = parse(json).notes;
  ASSERT_EQ(several.size(), 1u);
  EXPECT_NE(several[0].find("unknown keys `frob`, `nicate`: ignoring them"), std::string::npos) << several[0];
}

TEST(config_json, survives_ten_thousand_damaged_files) {
  const std::string good = early().dump();
  std::mt19937 random(1);
  const std::vector<std::string> words{
      "null", "-1", "1e999", "NaN", "Infinity", "[", "]", "{", "}", "\"", ",", ":", "\\", "0", "99999999999999999999", "true", "\"auto\"", "\xc3"};
  int accepted = 0;
  for (int trial = 0; trial < 10000; ++trial) {
    std::string bad = good;
    for (unsigned n = 1 + random() % 3; n > 0; --n) {
      const std::size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0: bad[at] = char(random()); break;
        case 1: bad.replace(at, random() % 8, words[random() % words.size()]); break;
        case 2: bad.erase(at, 1 + random() % 20); break;
        default: bad.insert(at, bad.substr(random() % bad.size(), random() % 40));
      }
      if (bad.empty()) bad = "{";
    }
    try {
      const std::string text = write_config_json(parse_config_json(bad, "x"));
      ++accepted;
      EXPECT_EQ(write_config_json(parse_config_json(text, "x")), text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Exit::data) << error.what();
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, 9000);
}

}  // namespace
}  // namespace gyr::testing::config_json_suite
