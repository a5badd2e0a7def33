// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/fingerprint.hpp"

#include "kernels/base/error.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/team.hpp"
#include "regression/support/testing.hpp"
#include "src/data/builder.hpp"

namespace gyr::testing::fingerprint_suite {

namespace fs = std::filesystem;

namespace {

// Fingerprint of a corpus that `ranks` threads have built from this text.
Fingerprint built(const Folder& folder, const std::string& text, int ranks) {
  put_contents(folder / "a.txt", text);
  put_contents(folder / "tokenizer.json", "{}");
  BuildOptions options{{folder / "a.txt"}, folder / "corpus", {}, 0, true};
  options.format.rule = DocumentFormat::Rule::line;
  options.tokenizer = mark_of(folder / "tokenizer.json");
  options.tokenizer->tokens = 257;
  options.program = "gyrfalcon test", options.given_options = {{"--documents", "line"}};
  const Tokenizer tokenizer(gyr::byte_vocabulary(std::vector<std::string>{"<|endoftext|>"}));
  if (ranks == 1) build_corpus(tokenizer, options);
  else as_team(ranks, [&](const BuildTeam& team) { build_corpus(tokenizer, options, team); });
  return fingerprint_of(folder / "corpus").value();
}

}  // namespace

TEST(fingerprint, content_sum_does_not_depend_on_ranks) {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 400000; ++i) text += "line " + std::to_string(i) + "\n";
  const Fingerprint one = built(folder, text, 1);
  EXPECT_EQ(built(folder, text, 2).id(), one.id());
  EXPECT_EQ(built(folder, text, 3).id(), one.id());
  EXPECT_EQ(one.documents, 400000);
}

TEST(fingerprint, content_sum_changes_with_order_and_text) {
  const Folder folder;
  const std::string id = built(folder, "one\ntwo\nthree\n", 1).id();
  EXPECT_EQ(built(folder, "one\ntwo\nthree\n", 1).id(), id);
  for (const char* other : {"two\none\nthree\n", "one\ntwo\nthrea\n", "one\ntwothree\n", "one\ntwo\nthree\nfour\n"})
    EXPECT_NE(built(folder, other, 1).id(), id) << other;
}

TEST(fingerprint, text_reads_back_equal) {
  const Folder folder;
  const Fingerprint f = built(folder, "one\ntwo\n", 1);
  EXPECT_EQ(f.tokenizer.bytes, 2);
  EXPECT_EQ(f.tokenizer.tokens, 257);
  EXPECT_EQ(f.sources, (decltype(f.sources){{(folder / "a.txt").string(), 8}}));
  EXPECT_EQ(f.options, (decltype(f.options){{"--documents", "line"}}));
  EXPECT_EQ(text_of(f), contents(fingerprint_path(folder / "corpus")));
}

TEST(fingerprint, foreign_json_is_ignored_and_kept) {
  const Folder folder;
  put_contents(folder / "corpus.json", "{\"text\": \"a user's file\"}\n");
  EXPECT_FALSE(fingerprint_of(folder / "corpus").has_value());
  EXPECT_FALSE(fingerprint_of(folder / "none").has_value());
  try {
    built(folder, "one\n", 1);
    ADD_FAILURE() << "a file of the user would be replaced";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Exit::usage);
    EXPECT_NE(std::string(error.what()).find("corpus.json: exists and is not a fingerprint"), std::string::npos) << error.what();
  }
  EXPECT_EQ(contents(folder / "corpus.json"), "{\"text\": \"a user's file\"}\n");
}

}  // namespace gyr::testing::fingerprint_suite
