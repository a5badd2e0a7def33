// SPDX-License-Identifier: BSD-3-Clause
// Token ids and texts must equal those of Hugging Face `tokenizers`. regression/golden/tokenizer_suite.py has created
// the tokenizers and recorded the results of the library.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "regression/support/folder.hpp"
#include "src/tokenizer/tokenizer.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::testing::tokenizer_golden_suite {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

const fs::path folder = fs::path(GYR_SOURCE_DIR) / "regression/golden/tokenizers";

json read(const std::string& name) {
  std::ifstream file(folder / name);
  return json::parse(file);
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    const std::string end = ".expected.json";
    if (name.ends_with(end)) names.push_back(name.substr(0, name.size() - end.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

class tokenizer_golden : public ::testing::TestWithParam<std::string> {};

void expect_same(const Tokenizer& t, const json& expected, const std::vector<std::string>& texts) {
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(t.size(), expected["size"].get<int>());
  ASSERT_EQ(texts.size(), expected["texts"].size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const json& row = expected["texts"][i];
    const std::string text = texts[i];
    const auto complete = row["ids"].get<Ids>(), inner = row.value("inner", complete), as_text = row.value("as_text", inner);
    for (const char* source : {"", " from the cache"}) {
      EXPECT_EQ(t.encode(text, Tokenizer::Specials::complete), complete) << json(text) << source;
      EXPECT_EQ(t.encode(text, Tokenizer::Specials::as_tokens), inner) << json(text) << source;
      EXPECT_EQ(t.encode(text), as_text) << json(text) << source;
    }
    const std::string decoded = row.value("decoded", text), without = row.value("short", decoded);
    EXPECT_EQ(gyr::lossy_utf8(t.decode(complete)), decoded) << json(text);
    EXPECT_EQ(gyr::lossy_utf8(t.decode(complete, Tokenizer::Shown::without_specials)), without) << json(text);
  }
}

TEST_P(tokenizer_golden, ids_match_hugging_face_tokenizers) {
  const auto texts = read("texts.json").get<std::vector<std::string>>();
  const json expected = read(GetParam() + ".expected.json");
  const auto t = Tokenizer::load(folder / (GetParam() + ".json"));
  expect_same(t, expected, texts);
  const gyr::testing::Folder temporary;
  t.save(temporary / "again.json");
  expect_same(Tokenizer::load(temporary / "again.json"), expected, texts);
}

// A text with every byte next to letters must be encoded. Byte-level tokenizers must decode it to the same text, so
// that no character is lost between two pieces.
TEST_P(tokenizer_golden, any_bytes_can_be_encoded) {
  const auto t = Tokenizer::load(folder / (GetParam() + ".json"));
  std::string text;
  for (int b = 0; b < 256; ++b) text += std::string("a ") + char(b) + char(255 - b);
  const auto ids = t.encode(text);
  const std::string again = t.decode(ids);
  EXPECT_FALSE(ids.empty());
  if (GetParam() == "gpt2" || GetParam() == "llama3" || GetParam() == "falcon3" || GetParam() == "o200k") {
    EXPECT_EQ(again, text);
  }
}

INSTANTIATE_TEST_SUITE_P(all, tokenizer_golden, ::testing::ValuesIn(names()), [](const auto& info) { return info.param; });

TEST(tokenizer_golden, golden_tokenizers_are_present) { EXPECT_GE(names().size(), 20u); }

}  // namespace

}  // namespace gyr::testing::tokenizer_golden_suite
