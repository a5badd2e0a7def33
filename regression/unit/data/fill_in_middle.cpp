// SPDX-License-Identifier: BSD-3-Clause
// Fill-in-the-middle: rearranged documents, and the samples that consist of them.
#include "src/data/mixing/fill_in_middle.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <random>

#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/data/dataset.hpp"
#include "src/data/token_writer.hpp"
#include "src/deck/deck.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr::testing::fill_in_middle_suite {
namespace {

using Ids = std::vector<std::int32_t>;

// Ids 0 to 3 are the end of a document, prefix, middle and suffix.
Tokenizer tokenizer_of_test() { return Tokenizer(byte_vocabulary(std::vector<std::string>{"<|endoftext|>", "<pre>", "<mid>", "<suf>"})); }

FillInMiddle filling(double rate, double spm, std::uint64_t seed = 7) {
  return FillInMiddle({rate, spm, {"<pre>", "<mid>", "<suf>"}}, tokenizer_of_test(), "tokenizer", seed);
}

struct Parts {
  Ids document;  // restored
  bool spm;
  std::size_t first, last;  // places
};

// Restores a rearranged document; empty if it is not one.
std::optional<Parts> restored(Ids ids) {
  Ids end;
  if (!ids.empty() && ids.back() == 0) end.push_back(0), ids.pop_back();
  if (ids.empty() || ids.front() != 1) return {};
  const auto suf = std::find(ids.begin(), ids.end(), 3), mid = std::find(ids.begin(), ids.end(), 2);
  if (suf == ids.end() || mid == ids.end() || mid < suf) return {};
  const bool spm = suf == ids.begin() + 1;
  const Ids suffix(suf + 1, mid), after(mid + 1, ids.end()), prefix(ids.begin() + 1, suf);
  Ids document = prefix;  // empty in the form SPM, whose prefix and middle are adjacent
  document.insert(document.end(), after.begin(), after.end());
  const std::size_t last = document.size();
  document.insert(document.end(), suffix.begin(), suffix.end());
  document.insert(document.end(), end.begin(), end.end());
  return Parts{document, spm, prefix.size(), last};
}

Ids document_of(std::size_t length, bool ends, std::int32_t first = 10) {
  Ids ids(length);
  std::iota(ids.begin(), ids.end(), first);
  if (ends) ids.push_back(0);
  return ids;
}

// Documents of these lengths, of which each ends with the end token, with rising tokens from 10 on.
struct Corpus {
  Folder folder;
  std::filesystem::path prefix = folder / "corpus";
  std::vector<Ids> documents;

  explicit Corpus(const std::vector<std::size_t>& lengths) {
    TokenWriter writer(prefix, 1 << 20);
    std::int32_t next = 10;
    for (const std::size_t length : lengths) {
      documents.push_back(document_of(length, true, next));
      next += std::int32_t(length);
      writer.add(documents.back());
      writer.end_document();
    }
    writer.finish();
  }
};

DatasetOptions options_of(const Corpus& corpus, std::int64_t L, SampleOrder order, const FillInMiddle& fill) {
  DatasetOptions o;
  o.corpora = {{corpus.prefix, {}}};
  o.split = "1", o.seq_length = L, o.order = order, o.fill_in_middle = fill, o.samples = 50;
  o.separate = order == SampleOrder::documents;
  return o;
}

}  // namespace

TEST(fill_in_middle, rearranged_documents_hold_all_tokens_in_order) {
  std::mt19937_64 random(seed_of_run());
  const FillInMiddle psm = filling(1, 0), spm = filling(1, 1);
  for (int trial = 0; trial < 500; ++trial) {
    const Ids document = document_of(1 + random() % 40, random() % 2);
    for (const FillInMiddle* const fill : {&psm, &spm}) {
      const Ids ids = (*fill)(document, Stream(random(), "test"));
      ASSERT_EQ(ids.size(), document.size() + FillInMiddle::sentinels);
      const auto parts = restored(ids);
      ASSERT_TRUE(parts);
      EXPECT_EQ(parts->document, document);
      EXPECT_TRUE(parts->spm == (fill == &spm) || parts->first == 0) << "a PSM document with an empty prefix looks like SPM";
    }
  }
  EXPECT_EQ(psm(Ids{}, Stream(1, "")), Ids{});
  EXPECT_EQ(psm(Ids{0}, Stream(1, "")), Ids{0}) << "only the end token";
}

// Bounds are five standard deviations.
TEST(fill_in_middle, rates_and_places_follow_the_settings) {
  const std::size_t n = 6, draws = 20000;
  const FillInMiddle fill = filling(0.3, 0.75), psm = filling(1, 0);
  const Ids document = document_of(n, true);
  std::size_t rearranged = 0, spm = 0;
  std::map<std::pair<std::size_t, std::size_t>, double> places;
  for (std::size_t k = 0; k < draws; ++k) {
    const Stream draw = fill.draws(0, std::int64_t(k), 0, 3);
    if (const auto parts = restored(fill(document, draw))) ++rearranged, spm += parts->spm;
    const auto parts = restored(psm(document, draw));
    ++places[{parts->first, parts->last}];
  }
  EXPECT_NEAR(double(rearranged), 0.3 * draws, 5 * std::sqrt(0.3 * 0.7 * draws));
  const double of_spm = 0.75 + 0.25 * 13 / 49;  // PSM with an empty prefix: the first of two places is 0
  EXPECT_NEAR(double(spm), of_spm * double(rearranged), 5 * std::sqrt(of_spm * (1 - of_spm) * double(rearranged)));
  EXPECT_EQ(places.size(), (n + 1) * (n + 2) / 2);
  for (const auto& [place, count] : places) {
    const double share = (place.first == place.second ? 1.0 : 2.0) / double((n + 1) * (n + 1));
    EXPECT_NEAR(count, share * draws, 5 * std::sqrt(share * draws)) << place.first << " " << place.second;
  }
}

TEST(fill_in_middle, draws_depend_on_seed_document_and_epoch_only) {
  const FillInMiddle fill = filling(1, 0.5), same = filling(1, 0.5), reseeded = filling(1, 0.5, 8);
  const Ids document = document_of(1000, true);
  const Ids ids = fill(document, fill.draws(1, 2, 3, 4));
  EXPECT_EQ(ids, same(document, same.draws(1, 2, 3, 4)));
  EXPECT_NE(ids, reseeded(document, reseeded.draws(1, 2, 3, 4)));
  for (const Stream& other : {fill.draws(0, 2, 3, 4), fill.draws(1, 0, 3, 4), fill.draws(1, 2, 0, 4), fill.draws(1, 2, 3, 0), fill.draws(2, 1, 3, 4)})
    EXPECT_NE(ids, fill(document, other));
}

// Packed documents are not cut: a window keeps room for the three tokens of each document.
TEST(fill_in_middle, packed_documents_are_full_once_an_epoch) {
  std::mt19937 random(seed_of_run());
  for (int trial = 0; trial < 8; ++trial) {
    const std::int64_t L = 8 + random() % 40;
    std::vector<std::size_t> lengths(60);
    for (std::size_t& length : lengths) length = 1 + random() % std::size_t(L - 4);  // with the end token and three more: at most L
    const Corpus corpus(lengths);
    const Dataset data(options_of(corpus, L, SampleOrder::documents, filling(0.6, 0.5)));
    std::vector<std::vector<Ids>> epochs(2);
    std::size_t rearranged = 0;
    for (std::int64_t i = 0; i < 2 * data.per_epoch(0); ++i) {
      const Sample s = data.sample(i);
      for (const TextSpan& t : s.texts) {
        ASSERT_GT(t.count, 0);
        const Ids ids(s.tokens.begin() + t.first, s.tokens.begin() + t.first + t.count);
        const auto parts = restored(ids);
        rearranged += parts.has_value();
        epochs[std::size_t(i / data.per_epoch(0))].push_back(parts ? parts->document : ids);
        EXPECT_EQ(s.positions[std::size_t(t.first)], 0);
        EXPECT_EQ(std::count(s.learned.begin() + t.first + 1, s.learned.begin() + t.first + t.count, 1), t.count - 1);
      }
    }
    for (auto& documents : epochs) {
      std::sort(documents.begin(), documents.end());
      EXPECT_EQ(documents, corpus.documents) << trial;
    }
    EXPECT_NEAR(double(rearranged), 72, 40);
  }
}

// Each part of a document within a window is rearranged by itself, and the end of the window is dropped.
TEST(fill_in_middle, joined_windows_hold_rearranged_parts_in_order) {
  std::mt19937 random(seed_of_run());
  std::vector<std::size_t> lengths(80);
  for (std::size_t& length : lengths) length = 1 + random() % 30;
  const Corpus corpus(lengths);
  for (const SampleOrder order : {SampleOrder::shuffled, SampleOrder::megatron}) {
    const std::int64_t L = 50;
    const Dataset data(options_of(corpus, L, order, filling(1, 0.5))), plain(options_of(corpus, L, order, {}));
    for (std::int64_t i = 0; i < 40; ++i) {
      const Ids tokens = data.sample(i).tokens;
      ASSERT_EQ(tokens.size(), std::size_t(L + 1));
      EXPECT_EQ(tokens, Dataset(options_of(corpus, L, order, filling(1, 0.5))).sample(i).tokens) << "a pure function of the number";
      std::size_t at = 0;
      for (const Extract& e : plain.extracts(i).second) {
        const Ids part(corpus.documents[std::size_t(e.sequence)].begin() + e.offset,
                       corpus.documents[std::size_t(e.sequence)].begin() + e.offset + e.count);
        const std::size_t size = part == Ids{0} ? 1 : part.size() + 3;
        if (at + size > tokens.size()) break;
        const Ids ids(tokens.begin() + std::ptrdiff_t(at), tokens.begin() + std::ptrdiff_t(at + size));
        EXPECT_EQ(size == 1 ? ids : restored(ids).value_or(Parts{}).document, part) << i;
        at += size;
      }
      EXPECT_GT(at, 0u);
    }
  }
}

TEST(fill_in_middle, unsuitable_tokens_and_data_are_refused) {
  const auto refusal = [](const std::vector<std::string>& tokens) {
    return error_of([&] { FillInMiddle({1, 0.5, tokens}, tokenizer_of_test(), "tokenizer.json", 1); });
  };
  EXPECT_EQ(refusal({"<pre>", "<mid>", "<suf>"}).code, Exit::ok);
  for (const std::vector<std::string>& tokens : {std::vector<std::string>{"<pre>", "<mid>", "<none>"}, {"<pre>", "<mid>", "<|endoftext|>"}}) {
    EXPECT_EQ(refusal(tokens).code, Exit::config);
    EXPECT_NE(std::string(refusal(tokens).what()).find(tokens[2]), std::string::npos) << refusal(tokens).what();
  }
  const auto read = [](const std::string& fim, const std::string& tokenizer) {
    Deck deck = Deck::parse("data: {fim: " + fim + "}\n", "deck");
    return error_of([&] { read_fim(deck.section("data", "", Effect::course), tokenizer); }).code;
  };
  EXPECT_EQ(read("{rate: 0.5, tokens: [a, b, c]}", "t.json"), Exit::ok);
  EXPECT_EQ(read("{rate: 0.5, tokens: [a, b, c]}", ""), Exit::config);
  EXPECT_EQ(read("{rate: 0.5, tokens: [a, b, a]}", "t.json"), Exit::config);
  EXPECT_EQ(read("{rate: 0.5}", "t.json"), Exit::config);
  EXPECT_EQ(read("{rate: 1.5, tokens: [a, b, c]}", "t.json"), Exit::config);
  const Corpus corpus({5, 6, 7});
  DatasetOptions options = options_of(corpus, 6, SampleOrder::documents, filling(1, 0));
  EXPECT_EQ(error_of([&] { const Dataset data(options); }).code, Exit::ok);
  options.seq_length = 3;
  EXPECT_EQ(error_of([&] { const Dataset data(options); }).code, Exit::config);
  options.seq_length = 6, options.predicts = false;
  EXPECT_EQ(error_of([&] { const Dataset data(options); }).code, Exit::config);
}

}  // namespace gyr::testing::fill_in_middle_suite
