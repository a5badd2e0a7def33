// SPDX-License-Identifier: BSD-3-Clause
// Neighbours of the samples of a run are those that `retro query` found for their chunks; those of another run, incomplete
// ones and those of another project are refused.
#include <random>

#include "regression/support/retro.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/engine/model/chunk.hpp"
#include "src/evaluation/neighbour_overlap.hpp"
#include "src/retro/sample_neighbours.hpp"
#include "src/retro/vectors/vector_search.hpp"
#include "src/train/neighbours.hpp"

namespace gyr::testing::sample_neighbours_suite {
namespace {

namespace fs = std::filesystem;

constexpr Index chunk = 4, k = 3;

// A project of two corpora, and a run that reads them.
struct Drawn {
  Drawn(std::mt19937& random, const std::string& order) {
    lists = {drawn_documents(random, 60, 40, 30), drawn_documents(random, 40, 60, 30)};
    write_token_files(folder / "a", lists[0], TokenType::u16), write_token_files(folder / "b", lists[1], TokenType::i32);
    project = std::make_unique<RetroProject>(folder / "p", plain_settings({folder / "a", folder / "b"}, chunk, 50));
    run.model.pattern = "R", run.model.retrieval = {chunk, k, "X"}, run.model.vocab_size = 40;
    run.data.prefixes = {folder / "a", folder / "b"}, run.data.weights = {0.5, 0.5}, run.data.split = "90,10,0", run.data.order = order;
    run.data.separate = false, run.data.seed = 1234;
    run.train.seq_length = 3 * chunk, run.train.steps = 10, run.train.global_batch_size = 4, run.train.eval_batches = 2;
    run.retro.project = folder / "p";
  }
  Dataset dataset(Split split) const {
    DatasetOptions o;
    o.corpora = {{folder / "a", 0.5}, {folder / "b", 0.5}};
    o.split = run.data.split, o.which = split, o.seq_length = run.train.seq_length, o.order = parse_sample_order(run.data.order);
    o.samples = split == Split::train ? 40 : 8;
    return Dataset(o);
  }
  retro::QuerySettings settings(Split split) const {
    retro::QuerySettings s = query_settings_of(run, project->settings, retro::index_mark_of(project->path, project->settings), split);
    s.candidates = 30, s.saved = 4;
    return s;
  }
  // Tokens of a chunk and, if it is full, of the next chunk of the same document.
  std::vector<std::int32_t> tokens(std::int64_t id) const {
    const retro::ChunkRow row = project->database->rows(id, 1)[0];
    const auto& document = lists[row.corpus][row.document];
    const std::size_t end = row.last - row.first < chunk ? row.last : std::min<std::size_t>(document.size(), row.first + 2 * chunk);
    return {document.begin() + row.first, document.begin() + std::ptrdiff_t(end)};
  }

  Folder folder;
  std::vector<TokenLists> lists;
  std::unique_ptr<RetroProject> project;
  RunConfig run;
};

std::vector<std::int32_t> neighbour_of(const Sample& s, std::size_t i) {
  const auto begin = s.neighbours.begin() + std::ptrdiff_t(i) * 2 * chunk;
  return {begin, begin + s.neighbour_lengths[i]};
}

}  // namespace

TEST(sample_neighbours, samples_have_the_neighbours_of_their_chunks) {
  std::mt19937 random(seed_of_run());
  for (const std::string order : {"shuffled", "megatron"})
    for (const Split split : {Split::train, Split::validation}) {
      SCOPED_TRACE(order + (split == Split::train ? " training" : " validation"));
      const Drawn drawn(random, order);
      const retro::QuerySettings s = drawn.settings(split);
      const fs::path found = drawn.project->find(s);
      Dataset data = drawn.dataset(split);
      add_neighbours(drawn.run, split, data);
      const std::int64_t samples = order == "megatron" ? (split == Split::train ? 40 : 8) : data.per_epoch(0) + data.per_epoch(1);
      const retro::Blocks blocks = retro::neighbour_blocks(found, s, 3 * samples);
      std::int64_t present = 0, continued = 0;
      for (std::int64_t number = 0; number < (order == "megatron" ? samples : 3 * samples); ++number) {
        std::int64_t key = number;
        if (order == "shuffled") {
          const auto [corpus, window] = data.window_of(number);
          key = window + (corpus == 1 ? data.per_epoch(0) : 0);
        }
        const Sample sample = data.sample(number);
        ASSERT_EQ(sample.neighbour_lengths.size(), std::size_t(3 * k));
        for (std::int64_t c = 0; c < 3; ++c) {
          const std::int64_t query = 3 * key + c, block = query / s.block;
          const retro::NeighbourRows rows = retro::read_neighbours(blocks, block, s, drawn.project->database->size());
          for (Index n = 0; n < k; ++n) {
            const std::int64_t id = rows.ids[std::size_t((query - blocks.first(block)) * s.saved + n)];
            const std::vector<std::int32_t> expected = id < 0 ? std::vector<std::int32_t>() : drawn.tokens(id);
            EXPECT_EQ(neighbour_of(sample, std::size_t(c * k + n)), expected) << "sample " << number << " chunk " << c << " neighbour " << n;
            present += id >= 0, continued += std::int64_t(expected.size()) > chunk;
          }
        }
      }
      EXPECT_GT(present, samples) << "the draw has too few neighbours to show anything";
      EXPECT_GT(continued, 0);
    }
}

// The micro-batch has the n-th neighbours of all chunks before the next ones.
TEST(sample_neighbours, micro_batch_orders_neighbours_by_number) {
  std::vector<Sample> samples(2);
  for (std::int32_t b = 0; b < 2; ++b)
    for (std::int32_t i = 0; i < 2 * 2; ++i) {  // two chunks of two neighbours
      samples[std::size_t(b)].neighbour_lengths.push_back(10 * b + i);
      samples[std::size_t(b)].neighbours.insert(samples[std::size_t(b)].neighbours.end(), 4, 100 * b + i);
    }
  const EncoderInput all = neighbours_of(samples, {2, 2, "X"});
  EXPECT_EQ(all.length, 16);
  EXPECT_EQ(all.lengths, (std::vector<Index>{0, 2, 10, 12, 1, 3, 11, 13}));
  for (std::size_t i = 0; i < all.tokens.size(); ++i) EXPECT_EQ(all.tokens[i] % 100, all.lengths[i / 4] % 10) << i;
}

TEST(sample_neighbours, shuffled_neighbours_are_those_of_other_chunks) {
  std::mt19937 random(seed_of_run());
  Drawn drawn(random, "shuffled");
  drawn.project->find(drawn.settings(Split::train));
  const auto all = [&](Index seed) {
    drawn.run.retro.shuffle = seed;
    Dataset data = drawn.dataset(Split::train);
    add_neighbours(drawn.run, Split::train, data);
    std::vector<std::vector<std::int32_t>> lists;
    std::set<std::pair<std::int64_t, std::int64_t>> read;
    for (std::int64_t number = 0; read.size() < std::size_t(data.per_epoch(0) + data.per_epoch(1)); ++number) {
      if (!read.insert(data.window_of(number)).second) continue;
      const Sample s = data.sample(number);
      for (std::size_t i = 0; i < s.neighbour_lengths.size(); i += k) lists.push_back(neighbour_of(s, i));
    }
    return lists;
  };
  auto own = all(0), shuffled = all(7);
  std::size_t same = 0;
  for (std::size_t i = 0; i < own.size(); ++i) same += own[i] == shuffled[i];
  EXPECT_LT(same, own.size() / 2);
  EXPECT_NE(shuffled, all(8));
  std::sort(own.begin(), own.end()), std::sort(shuffled.begin(), shuffled.end());
  EXPECT_EQ(own, shuffled);
}

TEST(sample_neighbours, foreign_or_incomplete_neighbours_are_refused) {
  std::mt19937 random(seed_of_run());
  Drawn drawn(random, "shuffled");
  const auto refused = [&](Exit code, const std::vector<std::string>& parts, const std::function<void(RunConfig&)>& change = {}) {
    RunConfig run = drawn.run;
    if (change) change(run);
    Dataset data = drawn.dataset(Split::train);
    const Error error = error_of([&] { add_neighbours(run, Split::train, data); });
    const std::string text = error.what();
    EXPECT_EQ(error.code, code) << text;
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  };
  refused(Exit::missing, {"no neighbours of the training samples", "gyrfalcon retro query"});
  const retro::QuerySettings s = drawn.settings(Split::train);
  const fs::path folder = drawn.project->find(s);
  refused(Exit::ok, {});
  refused(Exit::config, {"retro.project is empty"}, [](RunConfig& run) { run.retro.project = ""; });
  refused(Exit::config, {"model.retrieval.chunk = 8", "have 4 tokens"}, [](RunConfig& run) { run.model.retrieval.chunk = 8; });
  refused(Exit::config, {"data.seed = 1234", "has 77"}, [](RunConfig& run) { run.data.seed = 77; });
  refused(Exit::config, {"train.seq_length = 12", "has 16"}, [](RunConfig& run) { run.train.seq_length = 16; });
  refused(Exit::config, {"holds 4 of each chunk", "--saved 5"}, [](RunConfig& run) { run.model.retrieval.neighbours = 5; });
  refused(Exit::missing, {"config.json: does not exist"}, [&](RunConfig& run) { run.retro.project = drawn.folder / "none"; });
  std::vector<fs::path> blocks;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".hdf5") blocks.push_back(entry.path());
  fs::remove(blocks.at(random() % blocks.size()));
  refused(Exit::missing, {"block files of neighbours", "finds the others"});
}

// Against a loop over all pairs of a target and a token of a neighbour.
TEST(sample_neighbours, overlap_counts_targets_in_seen_neighbours) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 50; ++draw) {
    const RetrievalConfig c{1 + Index(random() % 4), 1 + Index(random() % 3), "X"};
    const Index chunks = 1 + Index(random() % 4), length = chunks * c.chunk, r = c.neighbour_length();
    Sample s;
    for (Index t = 0; t <= length; ++t) s.tokens.push_back(std::int32_t(random() % 6)), s.learned.push_back(random() % 4 > 0);
    for (Index t = 0; draw % 2 == 0 && t <= length; ++t) s.positions.push_back(t == 0 || random() % 4 == 0 ? 0 : s.positions.back() + 1);
    for (Index n = 0; n < chunks * c.neighbours; ++n) s.neighbour_lengths.push_back(std::int32_t(random() % std::uint64_t(r + 1)));
    for (Index i = 0; i < chunks * c.neighbours * r; ++i) s.neighbours.push_back(std::int32_t(random() % 6));
    double targets = 0, found = 0;
    for (Index t = c.chunk - 1; t < length; ++t) {
      const Index last = (t + 1) / c.chunk * c.chunk - 1;  // of the chunk whose neighbours the row sees
      bool joined = true, seen = false;
      for (Index i = last + 1; i <= t; ++i) joined = joined && (s.positions.empty() || s.positions[std::size_t(i)] > 0);
      if (!joined || !s.learned[std::size_t(t + 1)]) continue;
      for (Index n = 0; n < c.neighbours; ++n)
        for (Index i = 0, of = (t + 1 - c.chunk) / c.chunk * c.neighbours + n; i < s.neighbour_lengths[std::size_t(of)]; ++i)
          seen = seen || s.neighbours[std::size_t(of * r + i)] == s.tokens[std::size_t(t + 1)];
      targets += 1, found += seen;
    }
    const std::optional<double> overlap = neighbour_overlap(s, c);
    ASSERT_EQ(overlap.has_value(), targets > 0);
    if (overlap) {
      EXPECT_DOUBLE_EQ(*overlap, found / targets);
    }
  }
}

}  // namespace gyr::testing::sample_neighbours_suite
