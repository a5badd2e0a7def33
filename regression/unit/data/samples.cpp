// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/samples.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

#include "kernels/base/error.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/data/dataset.hpp"
#include "src/data/token_writer.hpp"

namespace gyr::testing::samples_suite {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

namespace {

// Corpus in which token i is i + `start`, so that the tokens of a window show its position.
class Corpus {
 public:
  Corpus(const std::vector<std::int32_t>& lengths, std::int32_t start = 0) {
    static int made = 0;
    folder_ = fs::temp_directory_path() / ("gyr_samples_" + std::to_string(::getpid()) + "_" + std::to_string(made++));
    fs::create_directories(folder_);
    gyr::TokenWriter writer(prefix(), 1 << 20);
    for (const auto length : lengths) {
      Ids ids(static_cast<std::size_t>(length));
      std::iota(ids.begin(), ids.end(), start);
      start += length;
      writer.add(ids);
      writer.end_document();
    }
    writer.finish();
  }
  ~Corpus() { fs::remove_all(folder_); }
  fs::path prefix() const { return folder_ / "corpus"; }

 private:
  fs::path folder_;
};

constexpr std::int64_t vocab = 1 << 20;

// Tokens of a sample, concatenated from its extracts.
Ids read(const gyr::TokenFile& file, const gyr::Samples& samples, std::int64_t number, std::int64_t L) {
  Ids ids;
  for (const gyr::Extract& e : samples.extracts(number)) {
    Ids part(static_cast<std::size_t>(e.count));
    file.read(e.sequence, e.offset, part);
    ids.insert(ids.end(), part.begin(), part.end());
    EXPECT_GT(e.count, 0);
  }
  EXPECT_EQ(std::int64_t(ids.size()), L + 1);
  return ids;
}

int code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return int(error.code);
  }
  return 0;
}

}  // namespace

TEST(samples, permuted_indices_are_a_permutation) {
  for (const std::int64_t n : {1, 2, 3, 5, 16, 17, 1000, 4096, 4097}) {
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < n; ++i) seen.insert(gyr::permuted(i, n, 42));
    EXPECT_EQ(std::int64_t(seen.size()), n);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), n - 1);
  }
  const std::int64_t huge = (std::int64_t(1) << 61) + 12345;
  EXPECT_LT(gyr::permuted(huge - 1, huge, 1), huge);
}

// Over many keys, every element is equally frequent in every place. The bound 80 on the chi-square of 25 cells is far
// above chance.
TEST(samples, permutations_are_uniform_over_keys) {
  constexpr int n = 5, keys = 5000;
  int count[n][n] = {};
  for (std::uint64_t key = 0; key < keys; ++key)
    for (int i = 0; i < n; ++i) ++count[i][gyr::permuted(i, n, key)];
  double chi = 0;
  for (auto& row : count)
    for (const int c : row) chi += (c - keys / n) * (c - keys / n) / double(keys / n);
  EXPECT_LT(chi, 80);
}

TEST(samples, every_epoch_visits_every_window_once) {
  const Corpus corpus({7, 30, 0, 64, 3, 100, 5});
  const gyr::TokenFile file(corpus.prefix());
  for (const auto& [L, predicts] :
       {std::pair<std::int64_t, bool>{1, true}, {4, true}, {10, true}, {103, true}, {1, false}, {10, false}, {197, false}}) {
    const gyr::SequenceRange range{1, 6};  // tokens 7 to 203
    const auto samples = gyr::shuffled_samples(file, range, L, 9, predicts);
    const std::int64_t W = samples->per_epoch();
    EXPECT_EQ(W, (197 - predicts) / L);
    std::set<Ids> orders;
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      Ids starts;
      for (std::int64_t i = 0; i < W; ++i) {
        const Ids ids = read(file, *samples, epoch * W + i, L - !predicts);
        for (std::size_t t = 0; t < ids.size(); ++t) ASSERT_EQ(ids[t], ids[0] + std::int32_t(t));
        starts.push_back(ids[0]);
      }
      orders.insert(starts);
      std::sort(starts.begin(), starts.end());
      for (std::int64_t i = 0; i < W; ++i) EXPECT_EQ(starts[std::size_t(i)], 7 + i * L);
    }
    Ids rest(std::size_t(197 - W * L)), found;
    std::iota(rest.begin(), rest.end(), std::int32_t(7 + W * L));
    for (const gyr::Extract& e : samples->rest()) {
      found.resize(found.size() + std::size_t(e.count));
      file.read(e.sequence, e.offset, std::span(found).last(std::size_t(e.count)));
    }
    EXPECT_EQ(found, rest);
    EXPECT_TRUE(W <= 10 || orders.size() == 3) << "two epochs have the same order";
  }
  EXPECT_NE(read(file, *gyr::shuffled_samples(file, {0, 7}, 2, 1), 0, 2), read(file, *gyr::shuffled_samples(file, {0, 7}, 2, 2), 0, 2));
}

// The arrays were drawn by numpy, see regression/golden/megatron_order.py.
TEST(samples, megatron_order_matches_numpy) {
  const auto cases = nlohmann::json::parse(std::ifstream(GYR_SOURCE_DIR "/regression/golden/megatron_order.json"));
  ASSERT_EQ(cases.size(), 4u);
  for (const auto& c : cases) {
    const auto lengths = c["lengths"].get<Ids>(), documents = c["document_index"].get<Ids>();
    const Corpus corpus(lengths);
    const gyr::TokenFile file(corpus.prefix());
    Ids stream;  // tokens of all documents in the golden order
    std::vector<std::size_t> begins;
    for (const auto d : documents) {
      begins.push_back(stream.size());
      for (std::int64_t t = 0; t < file.length(d); ++t) stream.push_back(std::int32_t(file.first_token(d) + t));
    }
    const std::int64_t L = c["seq_len"];
    const auto samples = gyr::megatron_samples(file, {c["first"], c["last"]}, L, c["seed"], c["samples"]);
    ASSERT_EQ(samples->size(), std::int64_t(c["shuffle_index"].size()));
    for (std::int64_t i = 0; i < samples->size(); ++i) {
      const auto& start = c["sample_index"][c["shuffle_index"][std::size_t(i)].get<std::size_t>()];
      const auto from = stream.begin() + std::ptrdiff_t(begins[start[0].get<std::size_t>()] + start[1].get<std::size_t>());
      ASSERT_EQ(read(file, *samples, i, L), Ids(from, from + L + 1)) << "sample " << i << " of seed " << c["seed"];
    }
    EXPECT_EQ(code_of([&] { read(file, *samples, samples->size(), L); }), int(Exit::config));
  }
}

// Megatron shuffles the last epoch separately if fewer than 80 % of its windows are requested. Then the samples before it
// are windows of the earlier epochs, so that no token occurs twice in the samples of the first of two epochs.
TEST(samples, last_epoch_is_separate_below_80_percent) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 20; ++draw) {
    std::vector<std::int32_t> lengths;
    for (int i = 0; i < 40; ++i) lengths.push_back(std::int32_t(1 + random() % 30));
    const Corpus corpus(lengths);
    const gyr::TokenFile file(corpus.prefix());
    const std::int64_t L = 1 + std::int64_t(random() % 5), windows = (file.tokens() - 1) / L, limit = windows * 80 / 100;
    for (const std::int64_t of_last : {limit / 2, limit - 1, limit, (limit + windows) / 2}) {
      const auto samples = gyr::megatron_samples(file, {0, 40}, L, 1 + random() % 1000, windows + of_last);
      std::set<std::int32_t> seen;
      for (std::int64_t i = 0; i < windows; ++i) {
        const Ids ids = read(file, *samples, i, L);
        seen.insert(ids.begin(), ids.end() - 1);  // the next window begins with the last token
      }
      EXPECT_EQ(std::int64_t(seen.size()) == windows * L, of_last < limit) << of_last << " of " << windows << " windows of " << L;
    }
  }
}

TEST(samples, data_splits_match_megatron) {
  using gyr::Split;
  const auto range = [](const char* fractions, Split which, std::int64_t n) {
    const auto r = gyr::split_range(fractions, which, n);
    return std::pair(r.first, r.last);
  };
  EXPECT_EQ(range("949,50,1", Split::train, 1000), std::pair(0l, 949l));
  EXPECT_EQ(range("949,50,1", Split::validation, 1000), std::pair(949l, 999l));
  EXPECT_EQ(range("949,50,1", Split::test, 1000), std::pair(999l, 1000l));
  EXPECT_EQ(range("1", Split::train, 7), std::pair(0l, 7l));
  EXPECT_EQ(range("0.5,0.5", Split::train, 5), std::pair(0l, 2l));  // 2.5 is rounded half to even
  EXPECT_EQ(range("0.5,0.5", Split::validation, 5), std::pair(2l, 5l));
  for (const char* bad : {"", "a", "1,", ",1", "1,2,3,4", "-1,2", "0,0,0", "nan,1", "inf", "1;2", "1 2"})
    EXPECT_EQ(code_of([&] { range(bad, Split::train, 10); }), int(Exit::config)) << bad;
}

TEST(samples, dataset_joins_corpora_and_splits) {
  const Corpus a({100, 100, 100, 100}), b(std::vector<std::int32_t>(20, 50), 5000);
  gyr::DatasetOptions options;
  options.corpora = {{a.prefix(), 3.0}, {b.prefix(), 1.0}};
  options.split = "3,1";
  options.seq_length = 9;
  options.vocab_size = vocab;
  for (const auto order : {gyr::SampleOrder::shuffled, gyr::SampleOrder::megatron}) {
    options.order = order;
    options.samples = 400;
    options.which = gyr::Split::train;
    const gyr::Dataset train(options);
    options.which = gyr::Split::validation;
    const gyr::Dataset validation(options);
    int from_a = 0;
    for (int i = 0; i < 400; ++i) {
      const Ids ids = train.sample(i).tokens;
      from_a += ids[0] < 5000;
      for (const auto id : ids) EXPECT_TRUE(id < 300 || (id >= 5000 && id < 5750)) << id;
      for (const auto id : validation.sample(i).tokens) EXPECT_TRUE((id >= 300 && id < 400) || id >= 5750) << id;
    }
    EXPECT_EQ(from_a, 300);
  }
  options.corpora = {{a.prefix(), {}}, {b.prefix(), {}}};
  options.order = gyr::SampleOrder::shuffled;
  options.which = gyr::Split::train;
  // without weights, corpora are mixed by their windows: 299/9 = 33 and 749/9 = 83. One epoch visits each window once.
  const gyr::Dataset full(options);
  std::set<std::int32_t> starts;
  for (int i = 0; i < 33 + 83; ++i) starts.insert(full.sample(i).tokens[0]);
  EXPECT_EQ(starts.size(), 33u + 83u);
}

// Two corpora of the same size are shuffled in different orders.
TEST(samples, dataset_shuffles_each_corpus_independently) {
  const std::vector<std::int32_t> documents(100, 10);
  const Corpus a(documents), b(documents, 5000);
  gyr::DatasetOptions options;
  options.corpora = {{a.prefix(), 1.0}, {b.prefix(), 1.0}};
  options.split = "1";
  options.seq_length = 9;
  options.vocab_size = vocab;
  for (const auto order : {gyr::SampleOrder::shuffled, gyr::SampleOrder::documents}) {
    options.order = order;
    const gyr::Dataset both(options);
    Ids of_a, of_b;
    for (int i = 0; i < 100; ++i) {
      const std::int32_t first = both.sample(i).tokens[0];
      first < 5000 ? of_a.push_back(first) : of_b.push_back(first - 5000);
    }
    ASSERT_EQ(of_a.size(), of_b.size());
    EXPECT_NE(of_a, of_b);
  }
}

TEST(samples, invalid_dataset_options_give_matching_exit_codes) {
  const Corpus corpus({50, 50, 50});
  const auto code = [&](const std::function<void(gyr::DatasetOptions&)>& change) {
    gyr::DatasetOptions options;
    options.corpora = {{corpus.prefix(), {}}};
    options.split = "1";
    options.seq_length = 10;
    change(options);
    return code_of([&] {
      const gyr::Dataset data(options);
      for (int i = 0; i < 14; ++i) data.sample(i);
    });
  };
  EXPECT_EQ(code([](auto&) {}), 0);
  EXPECT_EQ(code([](auto& o) { o.seq_length = 149; }), 0);
  EXPECT_EQ(code([](auto& o) { o.seq_length = 150; }), int(Exit::data));
  EXPECT_EQ(code([](auto& o) { o.which = gyr::Split::test; }), int(Exit::data));
  EXPECT_EQ(code([](auto& o) { o.vocab_size = 100; }), int(Exit::data));
  EXPECT_EQ(code([](auto& o) { o.corpora[0].prefix += "x"; }), int(Exit::missing));
  EXPECT_EQ(code([](auto& o) { o.corpora.clear(); }), int(Exit::config));
  EXPECT_EQ(code([](auto& o) { o.seq_length = 0; }), int(Exit::config));
  EXPECT_EQ(code([](auto& o) { o.corpora.push_back({o.corpora[0].prefix, 2.0}); }), int(Exit::config));
  EXPECT_EQ(code([](auto& o) { o.corpora[0].weight = -1; }), int(Exit::config));
  EXPECT_EQ(code([](auto& o) { o.order = gyr::SampleOrder::megatron; }), int(Exit::config));
  EXPECT_EQ(code([](auto& o) { o.order = gyr::SampleOrder::megatron, o.samples = 14; }), 0);
  EXPECT_EQ(code([](auto& o) { o.order = gyr::SampleOrder::megatron, o.samples = 14, o.seed = 1ull << 32; }), int(Exit::config));
}

}  // namespace gyr::testing::samples_suite
