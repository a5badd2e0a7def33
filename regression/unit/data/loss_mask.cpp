// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/loss_mask.hpp"

#include "modules/objectives/objective.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/token_files.hpp"
#include "src/data/dataset.hpp"

namespace gyr::testing::loss_mask_suite {
namespace {

struct Corpus {
  Folder folder;
  std::filesystem::path prefix = folder / "corpus";
  Corpus() { write_token_files(prefix, {{1, 2, 3}, {4, 5, 6, 7}, {}, {8, 9}}, TokenType::u16); }
  void mask(const TokenLists& marks, TokenType type = TokenType::u8) const { write_token_files(mask_prefix(prefix), marks, type); }
  DatasetOptions options(std::int64_t L = 8) const {
    DatasetOptions o;
    o.corpora = {{prefix, {}}};
    o.split = "1";
    o.seq_length = L;
    return o;
  }
  Error refusal() const {
    return error_of([&] { Dataset(options()).sample(0); });
  }
};

TEST(loss_mask, is_read_from_file_next_to_tokens) {
  EXPECT_EQ(mask_prefix("a/b.c"), "a/b.c_mask");
  const Corpus corpus;
  const TokenFile tokens(corpus.prefix);
  EXPECT_EQ(LossMask::next_to(tokens), nullptr);
  corpus.mask({{0, 1, 1}, {0, 0, 1, 0}, {}, {1, 0}});
  const auto mask = LossMask::next_to(tokens);
  std::vector<std::uint8_t> marks(3);
  mask->read(1, 1, marks);
  EXPECT_EQ(marks, (std::vector<std::uint8_t>{0, 1, 0}));
}

TEST(loss_mask, labels_are_ignored_where_the_mask_is_zero) {
  const std::vector<Token> tokens{5, 6, 7, 8, 9};
  const std::vector<std::uint8_t> learned{1, 0, 1, 1, 0};
  EXPECT_EQ(next_tokens(tokens, learned), (std::vector<Token>{ignored_label, 7, 8, ignored_label}));
}

TEST(loss_mask, marks_the_target_tokens_of_a_sample) {
  const Corpus corpus;
  DatasetOptions o = corpus.options();
  EXPECT_EQ(Dataset(o).sample(0).learned, std::vector<std::uint8_t>(9, 1)) << "without a mask all tokens are targets";
  corpus.mask({{0, 1, 1}, {0, 0, 1, 0}, {}, {1, 1}});
  EXPECT_EQ(Dataset(o).sample(0).learned, (std::vector<std::uint8_t>{0, 1, 1, 0, 0, 1, 0, 1, 1}));
  o.separate = true;
  EXPECT_EQ(Dataset(o).sample(0).learned, (std::vector<std::uint8_t>{0, 1, 1, 0, 0, 1, 0, 0, 1}))
      << "the first token of the last document is no target";
  o.order = SampleOrder::documents, o.seq_length = 3;  // windows of four tokens, padded if shorter
  const Dataset packed(o);
  ASSERT_EQ(packed.per_epoch(0), 3);
  for (std::int64_t n = 0; n < 3; ++n) {
    const Sample s = packed.sample(n);
    const auto expected = s.tokens[0] == 1   ? std::vector<std::uint8_t>{0, 1, 1, 0}
                          : s.tokens[0] == 4 ? std::vector<std::uint8_t>{0, 0, 1, 0}
                                             : std::vector<std::uint8_t>{0, 1, 0, 0};
    EXPECT_EQ(s.learned, expected) << n;
  }
}

TEST(loss_mask, mask_that_does_not_match_tokens_is_refused) {
  const auto expect = [](const Corpus& corpus, Exit code, std::initializer_list<const char*> parts) {
    const Error error = corpus.refusal();
    EXPECT_EQ(error.code, code) << error.what();
    for (const char* part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << "'" << part << "' is not in: " << error.what();
  };
  const Corpus corpus;
  const auto mask = mask_prefix(corpus.prefix);
  corpus.mask({{0, 1, 1}, {0, 0, 1, 0}, {}, {1, 1}});
  expect(corpus, Exit::ok, {});
  corpus.mask({{0, 1, 1}, {0, 0, 1, 0}, {1, 1}});
  expect(corpus, Exit::data, {"corpus_mask.idx", "3 sequences", "has 4", "build both again"});
  corpus.mask({{0, 1, 1}, {0, 0, 1}, {0}, {1, 1}});
  expect(corpus, Exit::data, {"corpus_mask.idx: byte 38", "sequence 1", "3 values", "4 tokens"});
  corpus.mask({{0, 1, 1}, {0, 0, 1, 0}, {}, {1, 1}}, TokenType::u16);
  expect(corpus, Exit::data, {"corpus_mask.idx", "type 1 (u8)", "type 8"});
  corpus.mask({{0, 1, 1}, {0, 0, 2, 0}, {}, {1, 1}});
  expect(corpus, Exit::data, {"corpus_mask.bin: byte 5: 2"});
  std::filesystem::remove(tokens_path(mask));
  expect(corpus, Exit::missing, {"corpus_mask.bin"});
  corpus.mask({{0, 1, 1}, {0, 0, 1, 0}, {}, {1, 1}});
  std::filesystem::remove(index_path(mask));
  expect(corpus, Exit::missing, {"corpus_mask.idx"});
}

}  // namespace
}  // namespace gyr::testing::loss_mask_suite
