// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/corpus_advice.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace gyr::testing::corpus_advice_suite {
namespace {

BuildReport report_of(std::int64_t bytes, std::int64_t documents, std::int64_t tokens) { return {bytes, documents, tokens, tokens, 0, 0}; }

bool contains(const std::vector<std::string>& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) { return line.find(part) != line.npos; });
}

TEST(corpus_advice, suggested_vocabulary_grows_with_the_text) {
  EXPECT_EQ(suggested_vocabulary(0), 512);
  EXPECT_EQ(suggested_vocabulary(1'100'000), 512);
  EXPECT_EQ(suggested_vocabulary(31'828'739), 4096);
  EXPECT_EQ(suggested_vocabulary(std::int64_t(1) << 40), 32768);
}

TEST(corpus_advice, documents_without_validation_split_are_reported) {
  EXPECT_TRUE(contains(corpus_warnings(report_of(4000, 1, 1000), 4096, DocumentSource::undivided),
                       "1 document is too few for a validation split: --documents page"));
  EXPECT_TRUE(contains(corpus_warnings(report_of(4000, 3, 1000), 4096, DocumentSource::examples),
                       "3 documents are too few for a validation split; give more examples"));
  EXPECT_TRUE(contains(corpus_warnings(report_of(4000, 1, 1000), 4096, DocumentSource::pages),
                       "validation split; give more text, or set train.eval_every=0"));
  EXPECT_TRUE(corpus_warnings(report_of(4000, 40, 1000), 4096, DocumentSource::undivided).empty());
  EXPECT_TRUE(contains(corpus_warnings(report_of(4000, 6, 1000), 4096, DocumentSource::undivided),
                       "6 documents are too few for a validation split by the default data.split, 949,50,1 (90,10,0 takes 1 of them): --documents"));
}

// 1000 documents: 949 for training, 50 for validation, the last one for the test.
TEST(corpus_advice, documents_of_validation_are_stated) {
  EXPECT_TRUE(validation_text(report_of(4000, 1000, 1000)).starts_with("documents 950 to 999 of 1000, in the order of the files"));
  EXPECT_EQ(validation_text(report_of(4000, 1, 1000)), "");
}

TEST(corpus_advice, tokenizer_that_merges_nothing_is_reported) {
  EXPECT_TRUE(contains(corpus_warnings(report_of(40000, 40, 40000), 4096, DocumentSource::undivided),
                       "1.00 bytes per token with 4096 tokens in the vocabulary"));
  EXPECT_TRUE(corpus_warnings(report_of(40000, 40, 40000), 300, DocumentSource::undivided).empty()) << "a vocabulary of bytes has one byte per token";
  EXPECT_TRUE(corpus_warnings(report_of(40000, 40, 16000), 4096, DocumentSource::undivided).empty());
}

TEST(corpus_advice, suggested_settings_fit_the_size_of_data) {
  EXPECT_EQ(suggested_settings(report_of(1'100'000, 270, 409'600)),
            "train.steps=800 optimizer.warmup_steps=40 train.eval_every=160 train.eval_batches=8 (steps of 8 x 256 tokens; one epoch of all "
            "documents is 200 steps)");
  EXPECT_EQ(suggested_settings(report_of(4000, 1, 1000)),
            "train.steps=50 optimizer.warmup_steps=2 train.eval_every=0 (steps of 8 x 256 tokens; one epoch of all documents is 1 step)");
  EXPECT_NE(suggested_settings(report_of(0, 1, 2'048'000'000)).find("train.steps=1000000 optimizer.warmup_steps=2000"), std::string::npos);
}

TEST(corpus_advice, validation_needs_a_sample) {
  EXPECT_NE(suggested_settings(report_of(20'000, 60, 5000)).find("train.eval_every=0 "), std::string::npos) << "3 documents of 83 tokens";
  EXPECT_EQ(suggested_settings(report_of(40'000, 60, 10'000)).find("train.eval_every=0 "), std::string::npos) << "3 documents of 166 tokens";
}

// The settings for texts with enough tokens suggest a validation exactly where no warning states that its split is empty.
TEST(corpus_advice, suggested_validation_agrees_with_the_warning) {
  for (std::int64_t documents = 1; documents < 60; ++documents)
    for (const DocumentSource from : {DocumentSource::undivided, DocumentSource::pages, DocumentSource::examples}) {
      const BuildReport report = report_of(8000 * documents, documents, 2000 * documents);
      const bool warned = contains(corpus_warnings(report, 300, from), "too few for a validation split");
      EXPECT_EQ(warned, suggested_settings(report).find("train.eval_every=0 ") != std::string::npos) << documents;
    }
}

}  // namespace
}  // namespace gyr::testing::corpus_advice_suite
