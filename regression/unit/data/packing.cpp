// SPDX-License-Identifier: BSD-3-Clause
// Samples packed from complete documents, and documents that do not attend to each other, in any sample order.
#include "src/data/packing.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/data/dataset.hpp"
#include "src/data/token_writer.hpp"
#include "src/train/feed.hpp"

namespace gyr::testing::packing_suite {
namespace {

using Ids = std::vector<std::int32_t>;

// Documents of these lengths; token t of document d is 1000 d + t + 1.
struct Corpus {
  Folder folder;
  std::filesystem::path prefix = folder / "corpus";
  Ids lengths;

  explicit Corpus(const Ids& l, std::int32_t first = 0) : lengths(l) {
    TokenWriter writer(prefix, 1 << 20);
    for (std::size_t d = 0; d < lengths.size(); ++d) {
      Ids ids(lengths[d]);
      std::iota(ids.begin(), ids.end(), 1000 * (first + std::int32_t(d)) + 1);
      writer.add(ids);
      writer.end_document();
    }
    writer.finish();
  }
};

Ids random_lengths(std::size_t count, int longest, unsigned seed) {
  std::mt19937 random(seed);
  Ids lengths(count);
  for (auto& length : lengths) length = std::int32_t(random() % unsigned(longest + 1));
  return lengths;
}

SampleSource samples_of(const Dataset& data) {
  return [&](Index number) { return data.sample(number); };
}

DatasetOptions options_of(const Corpus& corpus, std::int64_t L, SampleOrder order, bool separate = true) {
  DatasetOptions o;
  o.corpora = {{corpus.prefix, {}}};
  o.split = "1";
  o.seq_length = L;
  o.order = order;
  o.separate = separate;
  o.samples = 1000;
  return o;
}

TEST(packing, best_fit_prefers_the_least_remaining_capacity) {
  EXPECT_EQ(best_fit({7, 6, 3, 3, 2, 2}, 10), (std::vector<std::uint32_t>{0, 1, 0, 1, 2, 2}));
  EXPECT_EQ(best_fit({10, 10, 1}, 10), (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(best_fit({}, 10), (std::vector<std::uint32_t>{}));
  EXPECT_EQ(best_fit({8, 7, 2}, 10), (std::vector<std::uint32_t>{0, 1, 0})) << "chosen: the window with room for 2 tokens, not 3";
}

// No window is over-full, and no two windows could be merged: best-fit opens a window only if no other has enough room.
TEST(packing, no_two_windows_could_be_merged) {
  for (const int longest : {5, 40, 100}) {
    Ids lengths = random_lengths(500, longest, 3);
    std::sort(lengths.rbegin(), lengths.rend());
    const std::vector<std::int64_t> sizes(lengths.begin(), lengths.end());
    const auto window_of = best_fit(sizes, 100);
    std::map<std::uint32_t, std::int64_t> filled;
    for (std::size_t i = 0; i < sizes.size(); ++i) filled[window_of[i]] += sizes[i];
    std::vector<std::int64_t> sums;
    for (const auto& [window, sum] : filled) sums.push_back(sum);
    std::sort(sums.begin(), sums.end());
    EXPECT_LE(sums.back(), 100);
    if (sums.size() > 1) {
      EXPECT_GT(sums[0] + sums[1], 100);
    }
  }
}

TEST(packing, every_epoch_has_each_document_once) {
  for (const std::int64_t L : {1, 7, 30, 64}) {
    const Corpus corpus(random_lengths(150, 40, 5));
    const TokenFile file(corpus.prefix);
    const SequenceRange range{10, 140};
    const auto samples = packed_samples(file, range, L, 11);
    std::set<std::vector<Ids>> epochs;
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int> seen(corpus.lengths.size());
      std::vector<Ids> windows;
      for (std::int64_t i = 0; i < samples->per_epoch(); ++i) {
        std::int64_t tokens = 0;
        Ids window;
        for (const Extract& e : samples->extracts(epoch * samples->per_epoch() + i)) {
          EXPECT_EQ(e.offset, 0);
          EXPECT_EQ(e.count, std::min<std::int64_t>(corpus.lengths[std::size_t(e.sequence)], L + 1)) << "truncated only if longer than a window";
          ++seen[std::size_t(e.sequence)];
          tokens += e.count;
          window.push_back(std::int32_t(e.sequence));
        }
        EXPECT_LE(tokens, L + 1);
        EXPECT_GT(tokens, 0);
        windows.push_back(window);
      }
      for (std::size_t d = 0; d < seen.size(); ++d) EXPECT_EQ(seen[d], d >= 10 && d < 140 && corpus.lengths[d] > 0) << d;
      epochs.insert(windows);
    }
    EXPECT_EQ(epochs.size(), 3u) << "each epoch is packed and shuffled differently";
  }
}

// Objectives that label the input tokens themselves (no next-token prediction) read every token of a window. The last
// token of a document is read even if the document fills its window exactly.
TEST(packing, non_causal_objectives_read_documents_in_full) {
  std::mt19937 random(testing::seed_of_run());
  for (int draw = 0; draw < 20; ++draw) {
    const std::int64_t L = 1 + random() % 30;
    const Corpus corpus(random_lengths(1 + random() % 100, int(L) + 3, unsigned(random())));
    if (std::all_of(corpus.lengths.begin(), corpus.lengths.end(), [](std::int32_t length) { return length == 0; })) continue;
    DatasetOptions options = options_of(corpus, L, SampleOrder::documents);
    options.predicts = false;
    const Dataset data(options);
    Ids read, wanted;
    for (std::int64_t n = 0; n < data.per_epoch(0); ++n) {
      const Sample s = data.sample(n);
      std::copy_if(s.tokens.begin(), s.tokens.begin() + L, std::back_inserter(read), [](std::int32_t id) { return id != 0; });
      EXPECT_EQ(s.tokens[std::size_t(L)], 0);
      EXPECT_EQ(s.learned[std::size_t(L)], 0);
    }
    for (std::size_t d = 0; d < corpus.lengths.size(); ++d)
      for (std::int32_t t = 0; t < std::min<std::int64_t>(corpus.lengths[d], L); ++t) wanted.push_back(1000 * std::int32_t(d) + t + 1);
    std::sort(read.begin(), read.end());
    EXPECT_EQ(read, wanted) << "documents of up to " << L + 3 << " tokens in windows of " << L;
  }
}

// Documents that share a window in one epoch are mostly in different windows in the next.
TEST(packing, documents_are_packed_differently_in_every_epoch) {
  const Corpus corpus(Ids(64, 10));
  const TokenFile file(corpus.prefix);
  const auto samples = packed_samples(file, {0, 64}, 19, 1);
  ASSERT_EQ(samples->per_epoch(), 32);
  std::map<std::int64_t, std::int64_t> partner[2];
  for (std::int64_t n = 0; n < 64; ++n) {
    const auto e = samples->extracts(n);
    ASSERT_EQ(e.size(), 2u);
    partner[n / 32][e[0].sequence] = e[1].sequence;
    partner[n / 32][e[1].sequence] = e[0].sequence;
  }
  int same = 0;
  for (const auto& [a, b] : partner[0]) same += partner[1][a] == b;
  EXPECT_LT(same, 16);
}

TEST(packing, note_counts_truncated_documents) {
  const Corpus corpus({10, 12, 0, 4, 11, 3});
  EXPECT_EQ(
      Dataset(options_of(corpus, 9, SampleOrder::documents)).notes(),
      (std::vector<std::string>{corpus.prefix.string() +
                                ": 5 documents in 4 windows of 10 tokens, 92.5 % full; 2 longer than a window lose the end (train.seq_length)"}));
  EXPECT_TRUE(Dataset(options_of(corpus, 9, SampleOrder::shuffled)).notes().empty());
  const auto refused = [](const Ids& lengths) {
    const Corpus none(lengths);
    return error_of([&] { Dataset data(options_of(none, 9, SampleOrder::documents)); }).code;
  };
  EXPECT_EQ(refused({1, 0, 1}), Exit::data);
  EXPECT_EQ(refused({0}), Exit::data);
  EXPECT_EQ(refused({1, 2}), Exit::ok);
  const auto labelled = [](const Ids& lengths) {
    const Corpus corpus(lengths);
    DatasetOptions options = options_of(corpus, 9, SampleOrder::documents);
    options.predicts = false;
    return Dataset(options).notes().at(0);
  };
  EXPECT_NE(labelled({1, 0, 1}).find("2 documents in 1 window of 9 tokens, 22.2 % full"), std::string::npos) << labelled({1, 0, 1});
  EXPECT_NE(labelled({10, 9}).find("; 1 longer than a window loses the end"), std::string::npos) << labelled({10, 9});
  EXPECT_EQ(error_of([&] { labelled({0}); }).code, Exit::data);
}

// Checks separate documents by their tokens only. Positions count from the start of the document or window. No label
// crosses into another document or into padding; all other labels are present.
void check_separate(const Sample& s) {
  ASSERT_EQ(s.positions.size(), s.tokens.size());
  ASSERT_EQ(s.learned.size(), s.tokens.size());
  for (std::size_t t = 0; t < s.tokens.size(); ++t) {
    const bool padding = s.tokens[t] == 0;
    const bool follows = t > 0 && (padding ? s.tokens[t - 1] == 0 : s.tokens[t] == s.tokens[t - 1] + 1);
    EXPECT_EQ(s.positions[t], follows ? s.positions[t - 1] + 1 : 0) << t;
    if (t > 0) {
      EXPECT_EQ(bool(s.learned[t]), follows && !padding) << t;
    }
  }
}

TEST(packing, separate_documents_do_not_share_positions_or_labels) {
  const Corpus corpus(random_lengths(80, 30, 8));
  for (const SampleOrder order : {SampleOrder::shuffled, SampleOrder::megatron, SampleOrder::documents}) {
    const Dataset unpacked(options_of(corpus, 24, order)), joined(options_of(corpus, 24, order, false));
    bool middle = false, boundary = false, padding = false;
    for (std::int64_t n = 0; n < 2 * unpacked.per_epoch(0); ++n) {
      const Sample s = unpacked.sample(n), j = joined.sample(n);
      check_separate(s);
      EXPECT_EQ(s.tokens, j.tokens) << "both datasets have the same windows";
      EXPECT_TRUE(j.positions.empty());
      for (std::size_t t = 0; t < j.tokens.size(); ++t)
        EXPECT_EQ(bool(j.learned[t]), j.tokens[t] != 0) << "joined documents: all tokens but padding are targets";
      middle |= s.tokens[0] % 1000 != 1;
      boundary |= std::count(s.positions.begin(), s.positions.end(), 0) > 1;
      padding |= s.tokens.back() == 0;
    }
    EXPECT_TRUE(boundary);
    EXPECT_EQ(middle, order != SampleOrder::documents) << "windows that begin within a document";
    EXPECT_EQ(padding, order == SampleOrder::documents);
  }
}

// Batches on any grid consist of the same samples, and a sample does not depend on the samples requested before it.
TEST(packing, samples_depend_only_on_seed_and_number) {
  const Corpus a(random_lengths(60, 30, 1)), b(random_lengths(40, 50, 2), 100);
  DatasetOptions o = options_of(a, 32, SampleOrder::documents);
  o.corpora = {{a.prefix, 2.0}, {b.prefix, 1.0}};
  o.split = "3,1";
  const Dataset forward(o), backward(o);
  o.which = Split::validation;
  const Dataset validation(o);
  o.which = Split::train, o.seed += 1;
  const Dataset reseeded(o);
  std::vector<Ids> tokens(100);
  std::set<std::int32_t> documents, held_out;
  int from_a = 0, changed = 0;
  for (int n = 99; n >= 0; --n) tokens[std::size_t(n)] = backward.sample(n).tokens;
  for (int n = 0; n < 99; ++n) {
    const Sample s = forward.sample(n), v = validation.sample(n);
    EXPECT_EQ(s.tokens, tokens[std::size_t(n)]);
    check_separate(s);
    check_separate(v);
    from_a += s.tokens[0] < 100'000;
    changed += reseeded.sample(n).tokens != s.tokens;
    for (const auto id : s.tokens) documents.insert(id / 1000);
    for (const auto id : v.tokens) held_out.insert(id / 1000);
  }
  EXPECT_EQ(from_a, 66);
  EXPECT_GT(changed, 90);
  for (const auto d : held_out) EXPECT_TRUE(d == 0 || !documents.contains(d)) << d;  // 0 is padding
  for (const int data : {1, 2, 4}) {                                                 // micro-batches of two, sharded as the trainer shards them
    std::multiset<Ids> rows;
    for (int rank = 0; rank < data; ++rank)
      for (int i = 0; i < 4 / data; ++i) {
        const MicroBatch m = micro_batch_of(samples_of(forward), ModelConfig(), 16 + (i * data + rank) * 2, 2, 32);
        for (int row = 0; row < 2; ++row) rows.insert(Ids(m.tokens.begin() + row * 32, m.tokens.begin() + (row + 1) * 32));
      }
    std::multiset<Ids> expected;
    for (std::size_t n = 16; n < 24; ++n) expected.insert(Ids(tokens[n].begin(), tokens[n].end() - 1));
    EXPECT_EQ(rows, expected) << data;
  }
}

TEST(packing, micro_batches_carry_positions_and_ignore_masked_labels) {
  const Corpus corpus(random_lengths(60, 20, 4));
  const Dataset unpacked(options_of(corpus, 16, SampleOrder::documents)), joined(options_of(corpus, 16, SampleOrder::documents, false));
  EXPECT_TRUE(micro_batch_of(samples_of(joined), ModelConfig(), 3, 2, 16).positions.empty());
  const MicroBatch m = micro_batch_of(samples_of(unpacked), ModelConfig(), 3, 2, 16);
  ASSERT_EQ(m.positions.size(), 32u);
  for (std::size_t b = 0; b < 2; ++b) {
    const Sample s = unpacked.sample(3 + std::int64_t(b));
    for (std::size_t t = 0; t < 16; ++t) {
      EXPECT_EQ(m.tokens[16 * b + t], s.tokens[t]);
      EXPECT_EQ(m.positions[16 * b + t], s.positions[t]);
      EXPECT_EQ(m.labels[16 * b + t], s.learned[t + 1] ? s.tokens[t + 1] : ignored_label);
    }
  }
}

}  // namespace
}  // namespace gyr::testing::packing_suite
