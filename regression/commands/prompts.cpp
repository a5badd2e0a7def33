// SPDX-License-Identifier: BSD-3-Clause
// Tests of data build --prompts with the program: files, ranks, and options that it refuses.
#include <gtest/gtest.h>

#include "regression/support/material.hpp"

namespace gyr::testing::prompts_suite {

namespace fs = std::filesystem;

namespace {

// Builds the lines with these options, into folder / name.
Result built(const Folder& folder, const std::string& lines, const std::string& name, const Words& more, int ranks = 0) {
  put_contents(folder / "in.jsonl", lines);
  Words words{"data", "build", folder / "in.jsonl", folder / name, "--prompts"};
  words.insert(words.end(), more.begin(), more.end());
  return run(words, {.ranks = ranks});
}

const Words& tokenizer() {
  static const Words words{"--tokenizer", Material::get().tokenizer()};
  return words;
}

Words with_tokenizer(const Words& more) {
  Words words = tokenizer();
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string ending(const Folder& folder, const std::string& name, const char* end) { return contents((folder / name).string() + end); }

const std::string texts = "{\"prompt\": \"2+2=\", \"target\": 4}\n{\"target\": [1.5, null], \"prompt\": \"caf\xc3\xa9 \"}\n";

}  // namespace

TEST(prompts, built_files_hold_tokens_and_fields) {
  const Folder folder;
  const Result r = built(folder, texts, "p", tokenizer());
  ASSERT_EQ(r.code, 0) << output_of(r);
  EXPECT_NE(r.out.find("p_fields.jsonl: the other keys of each prompt"), std::string::npos) << r.out;
  EXPECT_EQ(ending(folder, "p", "_fields.jsonl"), "{\"target\":4}\n{\"target\":[1.5,null]}\n");
  ASSERT_EQ(built(folder, texts, "q", tokenizer(), 3).code, 0);
  for (const char* end : {".bin", ".idx", "_fields.jsonl", ".json"}) EXPECT_EQ(ending(folder, "p", end), ending(folder, "q", end)) << end;
  EXPECT_EQ(run({"data", "info", folder / "p"}).code, 0);
}

TEST(prompts, token_ids_need_no_tokenizer) {
  const Folder folder;
  ASSERT_EQ(built(folder, "{\"prompt\": [3, 1, 2], \"digit\": 3}\n", "p", {}).code, 0);
  const std::string ids = ending(folder, "p", ".bin");
  EXPECT_EQ(ids, std::string("\3\0\0\0\1\0\0\0\2\0\0\0", 12));
  const Result info = run({"data", "info", folder / "p"});
  EXPECT_NE(info.out.find("none: the sources hold token ids"), std::string::npos) << output_of(info);
}

TEST(prompts, template_ends_with_the_generation_prompt) {
  const Folder folder;
  const std::string lines = "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"n\": 1}\n{\"prompt\": \"hi\"}\n";
  const Result r = built(folder, lines, "p", with_tokenizer({"--template", "{role}: {content}\\n"}));
  ASSERT_EQ(r.code, 0) << output_of(r);
  const std::string one = "{\"prompt\": \"user: hi\\nassistant: \"}\n";
  ASSERT_EQ(built(folder, one + one, "q", tokenizer()).code, 0);
  EXPECT_EQ(ending(folder, "p", ".bin"), ending(folder, "q", ".bin"));
}

TEST(prompts, wrong_lines_and_options_are_refused) {
  const Folder folder;
  const auto expect = [&](const std::string& lines, const Words& more, int code, const char* part) {
    const Result r = built(folder, lines, "p", more);
    EXPECT_EQ(r.code, code) << part << output_of(r);
    EXPECT_NE(r.err.find(part), std::string::npos) << part << output_of(r);
    EXPECT_FALSE(fs::exists(folder / "p.idx")) << part;
  };
  expect(texts + "{\"question\": \"a\"}\n", tokenizer(), 65, "in.jsonl:3: the line has no key 'prompt' and no key 'messages' (keys: question)");
  expect(texts, {}, 65, "in.jsonl:1: the line has a text under 'prompt', which is encoded with a tokenizer; give --tokenizer");
  for (const Words& more : {Words{"--pairs"}, {"--classes", "2"}, {"--tags", "2"}, {"--source", "s"}, {"--special"}, {"--no-end"}})
    expect(texts, with_tokenizer(more), 64, ("--prompts cannot be combined with " + more[0]).c_str());
  expect(texts, with_tokenizer({"--documents", "line"}), 64, "--prompts reads JSON lines, not --documents line");
  expect(texts, with_tokenizer({"--template", "{prompt} {response}", "--response-key", "x"}), 64, "--response-key does not apply to --prompts");
  expect(texts, {"--template", "{prompt} {response}"}, 64, "--template formats texts, which need --tokenizer FILE");
}

TEST(prompts, keys_and_invalid_lines_follow_the_options) {
  const Folder folder;
  const std::string lines = "{\"q\": \"a\", \"prompt\": 1}\nnonsense\n";
  const Result r = built(folder, lines, "p", with_tokenizer({"--key", "q", "--skip-invalid"}));
  ASSERT_EQ(r.code, 0) << output_of(r);
  EXPECT_NE(r.out.find("invalid lines that were skipped: 1"), std::string::npos) << r.out;
  EXPECT_EQ(ending(folder, "p", "_fields.jsonl"), "{\"prompt\":1}\n");
  EXPECT_EQ(built(folder, lines, "p", with_tokenizer({"--key", "q", "--skip-invalid"})).code, 64) << "without --overwrite";
  const Result none = run({"data", "build", folder / "in.jsonl", folder / "q"});
  EXPECT_EQ(none.code, 64);
  EXPECT_NE(none.err.find("--tokenizer is required"), std::string::npos) << none.err;
}

}  // namespace gyr::testing::prompts_suite
