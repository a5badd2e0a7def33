// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/companions.hpp"

#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::companions_suite {
namespace {

using Tokens = std::vector<Index>;

std::string config(const std::string& end) {
  return R"({"model_type": "falcon_h1", "rope_theta": 1e4, "vocab_size": 50, "eos_token_id": )" + end + "}";
}

TEST(companions, end_tokens_equal_those_of_transformers_generate) {
  const auto ends = [](const Companions& c) { return end_tokens_in(c, "model"); };
  EXPECT_EQ(ends({}), Tokens{});
  EXPECT_EQ(ends({{"config.json", config("7")}}), Tokens{7});
  EXPECT_EQ(ends({{"config.json", config("[7, 9]")}, {"generation_config.json", "{}"}}), (Tokens{7, 9}));
  EXPECT_EQ(ends({{"config.json", config("7")}, {"generation_config.json", R"({"eos_token_id": null})"}}), Tokens{7});
  EXPECT_EQ(ends({{"config.json", config("7")}, {"generation_config.json", R"({"eos_token_id": 0})"}}), Tokens{0});
  EXPECT_EQ(ends({{"config.json", config("7")}, {"generation_config.json", R"({"eos_token_id": [11, 228]})"}}), (Tokens{11, 228}));
  EXPECT_EQ(ends({{"generation_config.json", R"({"eos_token_id": [3]})"}}), Tokens{3});
}

TEST(companions, invalid_end_token_is_reported_with_file) {
  for (const char* bad : {"-1", "1.5", "\"2\"", "{}", "[[1]]", "[1, null]", "true", "2147483648", "99999999999999999999"}) {
    const Error error = error_of([&] { end_tokens_in({{"generation_config.json", std::string(R"({"eos_token_id": )") + bad + "}"}}, "model"); });
    EXPECT_EQ(error.code, Exit::data) << bad;
    EXPECT_NE(std::string(error.what()).find("model/generation_config.json: eos_token_id"), std::string::npos) << error.what();
  }
  for (const char* bad : {"", "[]", "{", "7"})
    EXPECT_EQ(error_of([&] { end_tokens_in({{"generation_config.json", bad}}, "model"); }).code, Exit::data) << bad;
}

TEST(companions, only_sampling_suggestions_are_reported) {
  const auto suggested = [](const std::string& json) { return suggestions_in({{"generation_config.json", json}}, "model"); };
  EXPECT_EQ(suggestions_in({}, "model"), "");
  EXPECT_EQ(suggested(R"({"_from_model_config": true, "bos_token_id": 1, "eos_token_id": 2, "transformers_version": "5.0"})"), "");
  EXPECT_EQ(suggested(R"({"top_p": 0.9, "temperature": 0.7, "do_sample": true, "top_k": null})"), "do_sample true, temperature 0.7, top_p 0.9");
}

TEST(companions, chat_template_is_found_as_in_transformers) {
  const auto found = [](const Companions& c) {
    const auto t = chat_template_in(c, "m");
    return t ? t->origin + ": " + t->text : "none";
  };
  const std::string own_settings = R"({"eos_token": "</s>", "bos_token": {"content": "<s>"}, "pad_token": null, "chat_template": "A"})";
  EXPECT_EQ(found({}), "none");
  EXPECT_EQ(found({{"tokenizer_config.json", "{}"}}), "none");
  EXPECT_EQ(found({{"tokenizer_config.json", own_settings}}), "m/tokenizer_config.json: A");
  EXPECT_EQ(found({{"tokenizer_config.json", own_settings}, {"chat_template.json", R"({"chat_template": "C"})"}}), "m/tokenizer_config.json: A");
  EXPECT_EQ(found({{"tokenizer_config.json", own_settings}, {"chat_template.jinja", "B"}}), "m/chat_template.jinja: B");
  EXPECT_EQ(found({{"chat_template.json", R"({"chat_template": "C"})"}}), "m/chat_template.json: C");
  EXPECT_EQ(found({{"tokenizer_config.json", R"({"chat_template": [{"name": "tools", "template": "T"}, {"name": "default", "template": "D"}]})"}}),
            "m/tokenizer_config.json: D");
  const std::map<std::string, std::string> tokens{{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  EXPECT_EQ(chat_template_in({{"tokenizer_config.json", own_settings}}, "m")->tokens, tokens);
  for (const char* bad : {"7", "[]", R"([{"name": "tools", "template": "T"}])", R"({"rag": "R"})"}) {
    const Companions companions{{"tokenizer_config.json", std::string(R"({"chat_template": )") + bad + "}"}};
    EXPECT_EQ(error_of([&] { chat_template_in(companions, "m"); }).code, Exit::data) << bad;
  }
}

TEST(companions, unsuitable_files_are_left_out_and_reported) {
  const Folder folder;
  folder.write("config.json", config("1"));
  folder.write("tokenizer_config.json", std::string((1 << 20) + 1, ' '));
  folder.write("chat_template.jinja", "\xff");
  folder.write("thesis.tex", "private");
  std::vector<std::string> notes;
  const Companions carried = companions_in(folder.path(), [&](const std::string& note) { notes.push_back(note); });
  EXPECT_EQ(carried, (Companions{{"config.json", config("1")}}));
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_NE(notes[0].find("tokenizer_config.json: is not copied into the checkpoint: it has more than 1 MiB"), std::string::npos) << notes[0];
  EXPECT_NE(notes[1].find("chat_template.jinja: is not copied into the checkpoint: it has bytes that are not valid UTF-8"), std::string::npos)
      << notes[1];
}

}  // namespace
}  // namespace gyr::testing::companions_suite
