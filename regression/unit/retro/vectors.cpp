// SPDX-License-Identifier: BSD-3-Clause
// Search by vectors: exact search equals a loop in double, its results do not depend on the blocks, the mean of an encoder's
// rows is the vector of a text, and damaged files are named.
#include <cmath>

#include "regression/support/cases.hpp"
#include "regression/support/mutation.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/vector_project.hpp"
#include "src/evaluation/text_vectors.hpp"
#include "src/retro/vectors/flat_shard.hpp"

namespace gyr::testing::vectors_suite {
namespace {

namespace fs = std::filesystem;
using retro::Candidate;
using Floats = std::vector<float>;

// Vectors of which many are equal, and whose queries are often among them. `spread`: their distance from a common centre; if it is small, inner
// products in float cannot order their distances.
struct DrawnVectors {
  DrawnVectors(std::mt19937& random, std::size_t count, std::size_t w, std::size_t distinct, float spread) : width(w), number(count) {
    std::normal_distribution<float> normal;
    Floats pool(distinct * width), centre(width);
    for (float& x : centre) x = normal(random);
    for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = centre[i % width] + spread * normal(random);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t from = random() % distinct;
      vectors.insert(vectors.end(), pool.begin() + std::ptrdiff_t(from * width), pool.begin() + std::ptrdiff_t((from + 1) * width));
    }
    for (std::size_t q = 0; q < 9; ++q) {
      Floats query(pool.begin() + std::ptrdiff_t(q % distinct * width), pool.begin() + std::ptrdiff_t((q % distinct + 1) * width));
      for (float& x : query) x += q % 3 == 0 ? 0 : q % 3 == 1 ? 1e-5f * normal(random) : spread * normal(random);
      queries.insert(queries.end(), query.begin(), query.end());
    }
  }
  // Adds the vectors [first, last) to a shard, as ids from `first` on.
  void add(retro::FlatVectorShard& shard, std::size_t first, std::size_t last) const {
    const auto part = [&](std::size_t i) { return vectors.begin() + std::ptrdiff_t(i * width); };
    std::vector<std::uint32_t> corpora(last - first, 1), documents;
    for (std::size_t i = first; i < last; ++i) documents.push_back(std::uint32_t(i / 7));
    shard.add(std::int64_t(first), Floats(part(first), part(last)), corpora, documents);
  }
  std::vector<Candidate> nearest(std::size_t query, std::size_t most) const {
    std::vector<Candidate> all;
    for (std::size_t i = 0; i < number; ++i) {
      double sum = 0;
      for (std::size_t k = 0; k < width; ++k) {
        const double difference = double(vectors[i * width + k]) - double(queries[query * width + k]);
        const volatile double square = difference * difference;  // not fused with the addition
        sum += square;
      }
      all.push_back({-sum, std::int64_t(i), 1, std::uint32_t(i / 7)});
    }
    std::sort(all.begin(), all.end(), [](const Candidate& x, const Candidate& y) { return x.score != y.score ? x.score > y.score : x.id < y.id; });
    all.resize(std::min(all.size(), most));
    return all;
  }
  std::size_t width, number;
  Floats vectors, queries;
};

TEST(vectors, flat_search_equals_a_loop_in_double) {
  std::mt19937 random(seed_of_run());
  for (const auto& [count, width, distinct, spread] : {std::tuple(10'000u, 24u, 4'000u, 1.0f), std::tuple(3'000u, 67u, 3'000u, 1e-3f),
                                                       std::tuple(2'000u, 5u, 3u, 1.0f), std::tuple(3'000u, 16u, 3'000u, 1e-4f)}) {
    const DrawnVectors drawn(random, count, width, distinct, spread);
    retro::FlatVectorShard shard(width);
    std::size_t first = 0;
    while (first < count) {
      const std::size_t last = std::min<std::size_t>(count, first + 1 + random() % 3'000);
      drawn.add(shard, first, last), first = last;
    }
    const std::size_t most = 1 + random() % 200;
    auto found = shard.search(drawn.queries, std::int64_t(most));
    for (std::size_t q = 0; q < found.size(); ++q) {
      const std::vector<Candidate> expected = drawn.nearest(q, most);
      retro::keep_best(found[q], std::int64_t(most));
      ASSERT_EQ(found[q].size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(found[q][i].id, expected[i].id) << "query " << q << " result " << i;
        EXPECT_EQ(found[q][i].score, expected[i].score);
        EXPECT_EQ(found[q][i].document, expected[i].document);
      }
    }
  }
}

TEST(vectors, flat_search_without_vectors_finds_nothing) {
  retro::FlatVectorShard shard(3);
  EXPECT_TRUE(shard.search(Floats{1, 2, 3}, 5)[0].empty());
  shard.add(0, {}, {}, {});
  EXPECT_TRUE(shard.search(Floats{1, 2, 3}, 5)[0].empty());
}

TEST(vectors, neighbours_by_vectors_are_the_nearest_chunks) {
  const VectorProject p;
  p.build();
  const retro::Database& database = *p.project->database;
  retro::VectorSearch search(p.project->path, database, p.settings, VectorProject::encode, one_rank());
  EXPECT_EQ(search.mark().hash, retro::index_mark_of(p.project->path, p.project->settings).hash);
  EXPECT_TRUE(search.mark().vectors);
  for (std::int64_t id = 0; id < database.size(); id += 7) {
    const Floats query = VectorProject::encode(database.tokens(database.rows(id, 1)[0]));
    const auto found = search.nearest({database.tokens(database.rows(id, 1)[0]), {}}, 3, 0);
    EXPECT_EQ(found[0][0].score, 0) << "the chunk itself, or an equal one";
    EXPECT_LE(found[0][0].id, id);
    EXPECT_TRUE(found[1].empty()) << "an empty text";
    double least = 0;
    for (std::int64_t other = 0; other < database.size(); ++other) {
      const Floats vector = VectorProject::encode(database.tokens(database.rows(other, 1)[0]));
      double sum = 0;
      for (std::size_t k = 0; k < 6; ++k) sum += std::pow(double(vector[k]) - double(query[k]), 2);
      least += sum < -found[0].back().score;
    }
    EXPECT_LE(least, 2) << "chunks that are nearer than the third one";
  }
}

TEST(vectors, queries_by_vectors_are_stored_and_checked) {
  const VectorProject p;
  p.build();
  retro::VectorSearch search(p.project->path, *p.project->database, p.settings, VectorProject::encode, one_rank());
  retro::QuerySettings s;
  s.project = p.project->settings.hash(), s.index = search.mark().hash, s.vectors = true, s.chunk = 4, s.block = 20;
  s.corpora = p.project->settings.corpora, s.split = p.project->settings.split, s.order = "shuffled", s.seq_length = 8, s.saved = 3;
  const fs::path to = retro::neighbours_folder(p.project->path, s);
  retro::make_folder(to);
  retro::write_query_settings(to, s);
  EXPECT_EQ(retro::read_query_settings(to).values(), s.values());
  const retro::QuerySamples samples(s, p.project->settings, to / "config.json");
  retro::build_neighbours(to, s, samples, search, p.project->database->size(), one_rank(), [](std::int64_t, std::int64_t) {});
  const auto check = [&] {
    return retro::check_project(p.project->path, *p.project->database, 1, 1, one_rank(), [&] {
      return std::make_unique<retro::VectorSearch>(p.project->path, *p.project->database, p.settings, VectorProject::encode, one_rank());
    });
  };
  EXPECT_EQ(check().queries, samples.chunks());
  const retro::Blocks blocks = retro::neighbour_blocks(to, s, samples.chunks());
  retro::NeighbourRows rows = retro::read_neighbours(blocks, 0, s, p.project->database->size());
  std::swap(rows.ids[0], rows.ids[1]);
  retro::write_tables(blocks.file(0), s.hash(), 0,
                      [&](hdf5::TableWriter& file) { file.add<std::int64_t>("neighbors", 3, rows.ids), file.add<float>("scores", 3, rows.scores); });
  EXPECT_NE(std::string(error_of(check).what()).find(":neighbors: row 0 (chunk 0 of sample 0) has chunk"), std::string::npos);
}

TEST(vectors, contradictions_in_vectors_are_named) {
  const VectorProject p;
  p.build();
  const auto named = [&](const Floats& vectors, Index width, const std::string& part) {
    retro::write_tables(p.blocks().file(1), p.settings.hash(), 0, [&](hdf5::TableWriter& file) { file.add<float>("vectors", width, vectors); });
    const Error error = error_of([&] { p.build(); });
    EXPECT_EQ(error.code, Exit::data);
    EXPECT_NE(std::string(error.what()).find(p.blocks().file(1).filename().string() + part), std::string::npos) << error.what();
  };
  Floats vectors = retro::read_vectors(p.blocks(), 1, p.settings);
  vectors[6 * 4 + 2] = std::numeric_limits<float>::quiet_NaN();
  named(vectors, 6, ":vectors: row 4 has nan");
  vectors.resize(6 * 3);
  named(vectors, 6, ":vectors: has 3 rows for 20 chunks");
  named(vectors, 3, "");
  fs::remove(p.blocks().file(1));
  EXPECT_EQ(error_of([&] { retro::read_vectors(p.blocks(), 1, p.settings); }).code, Exit::missing);
  const auto infinite = [](std::span<const std::int32_t>) { return Floats(6, std::numeric_limits<float>::infinity()); };
  EXPECT_EQ(error_of([&] { p.build(infinite); }).code, Exit::numeric);
}

TEST(vectors, random_damage_is_refused_or_harmless) {
  Mutation mutation(seed_of_run());
  const VectorProject p;
  p.build();
  for (const fs::path& file : {p.blocks().file(0), retro::vectors_folder(p.project->path) / "config.json"}) {
    const std::string bytes = contents(file);
    int refused = 0;
    for (int draw = 0; draw < 150; ++draw) {
      mutation.damage(file);
      const Error error = error_of([&] {
        const retro::VectorSettings s = retro::read_vector_settings(p.project->path);
        for (std::int64_t b = 0; b < p.blocks().count(); ++b) retro::read_vectors(p.blocks(), b, s);
      });
      EXPECT_TRUE(error.code == Exit::ok || error.code == Exit::data || error.code == Exit::missing || error.code == Exit::io) << error.what();
      if (error.code != Exit::ok) {
        ++refused;
        EXPECT_NE(std::string(error.what()).find("flat"), std::string::npos) << error.what();
      }
      fs::remove_all(file);
      put_contents(file, bytes);
    }
    EXPECT_GT(refused, 5) << file;
  }
}

// Mean over the rows of an activation, in double.
struct MeanOfHook : Hook {
  explicit MeanOfHook(std::string n) : name(std::move(n)) {}
  std::string name;
  std::vector<double> mean;
  void micro_batch(int) override {}
  void observe(Observed what, const std::string& of, const AnyMatrix& x, Index, Index, std::span<const Held>) override {
    if (what != Observed::activation || of != name) return;
    mean.assign(std::size_t(x.columns), 0);
    for (Index r = 0; r < x.rows; ++r)
      for (Index c = 0; c < x.columns; ++c) mean[std::size_t(c)] += static_cast<const double*>(x.data)[r * x.stride + c] / double(x.rows);
  }
  void gradients_are_reduced() override {}
};

TEST(vectors, vector_is_the_mean_of_the_last_norm) {
  for (const NormPlacement placement : {NormPlacement::before, NormPlacement::after}) {
    EngineConfig config;
    config.model = named("T2").model;
    config.model.pattern = "*-", config.model.attention.causal = false, config.model.norm_placement = placement;
    config.seq_length = 7, config.training = false;
    Grid& grid = single_rank_grid(2);
    Rig<double> rig(config, grid);
    const auto fill = [&](Stage& stage) {
      for (const auto& p : stage.parameters().all()) assign(rig.engine.device(), *p, WeightValues(p->weight));
    };
    TextVectors vectors(config.model, grid, fill, 12);
    ASSERT_EQ(vectors.width(), config.model.hidden_size);
    const std::vector<Token> text{3, 1, 4, 1, 5, 9, 2}, other{3, 1, 4, 1, 5, 9, 3};
    const Floats vector = vectors(text), changed = vectors(other);
    EXPECT_EQ(vectors(text), vector) << "after another text";
    EXPECT_NE(changed, vector) << "the last token is read";
    MeanOfHook hook(placement == NormPlacement::after ? "model.layers.1.output" : "model.final_layernorm");
    rig.engine.set_hook(&hook);
    rig.engine.scores([&](int) { return MicroBatch{1, 7, text, std::vector<Token>(7, ignored_label), {}}; }, 1);
    rig.engine.set_hook(nullptr);
    ASSERT_EQ(hook.mean.size(), vector.size());
    for (std::size_t i = 0; i < vector.size(); ++i) EXPECT_NEAR(vector[i], hook.mean[i], 1e-5 * (1 + std::abs(hook.mean[i])));
  }
}

TEST(vectors, models_that_are_no_encoders_are_refused) {
  ModelConfig model = named("T2").model;
  const auto refused = [&] {
    return error_of([&] {
      TextVectors(
          model, single_rank_grid(model.layers()), [](Stage&) {}, 8);
    });
  };
  EXPECT_EQ(refused().code, Exit::config);
  EXPECT_NE(std::string(refused().what()).find("model.attention.causal = true: vectors of texts need a model"), std::string::npos);
}

}  // namespace
}  // namespace gyr::testing::vectors_suite
