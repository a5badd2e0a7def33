// SPDX-License-Identifier: BSD-3-Clause
// Families of Hugging Face's models: what is written of one is read again, what none can say is named, and weights go out as they came in.
#include <cstdlib>
#include <random>

#include "regression/folder.hpp"
#include "regression/golden.hpp"
#include "regression/testing.hpp"
#include "src/huggingface/family.hpp"
#include "src/huggingface/model_folder.hpp"
#include "src/pretrained/conversion.hpp"
#include "src/pretrained/pretrained.hpp"

namespace gyr::testing {
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
  m.attention.bias = d.coin(), m.mlp.bias = d.coin(), m.mlp.intermediate_size = d.from(1, 50);
  return m;
}

ModelConfig mamba2(Draw& d) {
  ModelConfig m = base_of(d);
  m.pattern.assign(std::size_t(d.from(1, 5)), 'M');
  m.mamba.head_dim = 8, m.mamba.num_heads = d.from(1, 3) * m.hidden_size / 8, m.mamba.state_size = d.from(1, 20);
  m.mamba.conv_kernel = d.from(2, 5), m.mamba.norm = SsmNorm::gate_first, m.mamba.conv_bias = d.coin();
  m.mamba.in_bias = m.mamba.out_bias = d.coin();
  if (d.coin()) m.mamba.dt_low = 0.1;
  if (d.coin()) m.mamba.dt_high = 0.7;
  return m;
}

TEST(families, what_is_written_is_read_again) {
  const char* const given = std::getenv("GYR_SEED");
  const unsigned seed = given ? unsigned(std::strtoul(given, nullptr, 10)) : 1;
  std::printf("seed %u\n", seed);
  Draw d(seed);
  for (int i = 0; i < 200; ++i) {
    const bool attention = d.coin();
    HuggingFaceConfig config;
    config.model = attention ? llama(d) : mamba2(d);
    SCOPED_TRACE(fmt::format("seed {} draw {}", seed, i));
    const Family& family = family_for(config.model);
    EXPECT_STREQ(family.model_type, attention ? "llama" : "mamba2");
    const std::string text = write_config_json(config);
    const HuggingFaceConfig back = parse_config_json(text, "written");
    EXPECT_TRUE(back.notes.empty()) << back.notes.front();
    EXPECT_EQ(back.model.pattern, config.model.pattern);
    EXPECT_EQ(write_config_json(back), text);
  }
}

TEST(families, the_one_a_model_came_from_is_kept_and_what_none_can_say_is_named) {
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

class family_folders : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(golden, family_folders, ::testing::ValuesIn(golden_family_names()), [](const auto& info) { return info.param; });

TEST_P(family_folders, go_out_as_they_came_in) {
  const Golden& g = golden(GetParam());
  const Folder folder;
  std::vector<std::string> notes;
  import_folder(g.folder, folder / "checkpoint", false, [&](const std::string& note) { notes.push_back(note); });
  export_folder(folder / "checkpoint", folder / "out", {{}, Index(1) << 30, {}, false}, [&](const std::string& note) { notes.push_back(note); });
  EXPECT_TRUE(notes.empty()) << notes.front();
  EXPECT_TRUE(contents(g.folder / one_file_name) == contents(folder / "out" / one_file_name));
  const HuggingFaceConfig in = read_config_json(g.folder / config_file_name), out = read_config_json(folder / "out" / config_file_name);
  EXPECT_EQ(in.model_type, out.model_type);
  EXPECT_EQ(write_config_json(in), write_config_json(out));
}

}  // namespace
}  // namespace gyr::testing
