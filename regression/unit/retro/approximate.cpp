// SPDX-License-Identifier: BSD-3-Clause
// Approximate search by vectors: with all lists probed it equals exact search, results depend neither on the shards nor on how queries are
// grouped, the stored recall is that of a plain loop, and damaged files are named. Without faiss every use is refused by name.
#include "regression/support/mutation.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "regression/support/vector_project.hpp"
#include "src/retro/vectors/flat_shard.hpp"

namespace gyr::testing::approximate_suite {
namespace {

namespace fs = std::filesystem;
using retro::Candidate;
using Floats = std::vector<float>;

#define NEEDS_FAISS() \
  if (retro::faiss_version().empty()) GTEST_SKIP() << "this build has no faiss (libfaiss-dev)"

constexpr std::size_t width = 8;

Floats drawn_vectors(std::mt19937& random, std::size_t count) {
  std::normal_distribution<float> normal;
  Floats vectors(count * width);
  for (float& x : vectors) x = normal(random);
  return vectors;
}

std::shared_ptr<const retro::ListQuantizer> quantizer_of(const std::string& factory, const Floats& vectors) {
  return retro::train_quantizer(factory, width, vectors, 5);
}

// Adds the vectors [first, last) as ids from `first` on.
void add(retro::CodedShard& shard, const retro::ListQuantizer& quantizer, const Floats& vectors, std::size_t first, std::size_t last) {
  const std::vector<std::uint32_t> none(last - first);
  shard.add(std::int64_t(first), quantizer.encode(std::span(vectors).subspan(first * width, (last - first) * width)), none, none);
}

std::vector<std::pair<double, std::int64_t>> pairs_of(std::vector<Candidate> found, std::int64_t most) {
  retro::keep_best(found, most);
  std::vector<std::pair<double, std::int64_t>> pairs;
  for (const Candidate& c : found) pairs.emplace_back(c.score, c.id);
  return pairs;
}

TEST(approximate, all_lists_probed_equal_exact_search) {
  NEEDS_FAISS();
  std::mt19937 random(seed_of_run());
  const std::size_t count = 700 + random() % 500;
  const Floats vectors = drawn_vectors(random, count), queries = drawn_vectors(random, 12);
  const auto quantizer = quantizer_of("IVF9,Flat", vectors);
  retro::CodedShard shard(quantizer, 9);
  add(shard, *quantizer, vectors, 0, count);
  retro::FlatVectorShard exact(width);
  const std::vector<std::uint32_t> none(count);
  exact.add(0, vectors, none, none);
  const auto found = shard.search(queries, 10), expected = exact.search(queries, 10);
  for (std::size_t q = 0; q < expected.size(); ++q) {
    const auto a = pairs_of(found[q], 10), b = pairs_of(expected[q], 10);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_NEAR(a[i].first, b[i].first, 1e-5 * (1 - b[i].first));
      if (i + 1 < b.size() && b[i].first - b[i + 1].first > 1e-4 && (i == 0 || b[i - 1].first - b[i].first > 1e-4)) {
        EXPECT_EQ(a[i].second, b[i].second);
      }
    }
  }
}

// Many equal vectors: ties go to the smaller id in any division.
TEST(approximate, merged_shards_equal_one_shard) {
  NEEDS_FAISS();
  std::mt19937 random(seed_of_run());
  for (const char* factory : {"IVF16,Flat", "IVF16,SQ8", "PCA4,IVF16,PQ2x4", "IVF16_HNSW4,PQ2x4"}) {
    Floats vectors = drawn_vectors(random, 600);
    for (std::size_t i = 0; i < 300; ++i)
      std::copy_n(vectors.begin() + std::ptrdiff_t(random() % 5 * width), width, vectors.begin() + std::ptrdiff_t((300 + i) * width));
    Floats queries = drawn_vectors(random, 6);
    queries.insert(queries.end(), vectors.begin(), vectors.begin() + 5 * std::ptrdiff_t(width));
    const auto quantizer = quantizer_of(factory, vectors);
    EXPECT_EQ(quantizer->stored(), quantizer_of(factory, vectors)->stored()) << factory;
    const auto read = std::shared_ptr<const retro::ListQuantizer>(retro::read_quantizer(quantizer->stored()));
    const std::int64_t most = 1 + std::int64_t(random() % 40);
    retro::CodedShard one(read, 3);
    add(one, *read, vectors, 0, 600);
    std::vector<std::vector<Candidate>> found(11);
    const int shards = 2 + int(random() % 3);
    for (int s = 0; s < shards; ++s) {
      retro::CodedShard part(read, 3);
      for (std::size_t first = std::size_t(s) * 50; first < 600; first += std::size_t(shards) * 50) add(part, *read, vectors, first, first + 50);
      const auto of_part = part.search(queries, most);
      for (std::size_t q = 0; q < found.size(); ++q) found[q].insert(found[q].end(), of_part[q].begin(), of_part[q].end());
    }
    const auto expected = one.search(queries, most);
    for (std::size_t q = 0; q < found.size(); ++q) EXPECT_EQ(pairs_of(found[q], most), pairs_of(expected[q], most)) << factory << " query " << q;
  }
}

TEST(approximate, drawn_ids_are_distinct_and_spread) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 50; ++draw) {
    const std::int64_t total = 1 + random() % 10'000, count = 1 + random() % total;
    const std::vector<std::int64_t> ids = retro::drawn_ids(count, total, draw);
    ASSERT_EQ(std::int64_t(ids.size()), count);
    for (std::int64_t i = 0; i < count; ++i) {
      EXPECT_GE(ids[std::size_t(i)], i * total / count);
      EXPECT_LT(ids[std::size_t(i)], (i + 1) * total / count);
      EXPECT_TRUE(i == 0 || ids[std::size_t(i)] > ids[std::size_t(i - 1)]);
    }
    EXPECT_LT(ids.back(), total);
    EXPECT_EQ(ids, retro::drawn_ids(count, total, draw));
  }
}

struct CodedProject : VectorProject {
  CodedProject(const std::string& factory, std::int64_t probes) {
    build();
    codes = retro::code_settings(factory, probes, settings, project->database->size());
    retro::make_folder(retro::codes_folder(project->path));
    retro::write_code_settings(project->path, codes);
    counts = make();
  }
  retro::CodeCounts make() const { return retro::build_codes(project->path, *project->database, settings, codes, one_rank()); }
  fs::path file(const std::string& name) const { return retro::codes_folder(project->path) / name; }
  fs::path block() const { return file(blocks().file(1).filename().string()); }
  retro::CodeSettings codes;
  retro::CodeCounts counts;
};

TEST(approximate, recall_equals_a_plain_loop) {
  NEEDS_FAISS();
  const CodedProject all("IVF5,Flat", 5), few("IVF24,Flat", 1);
  EXPECT_GT(all.counts.recall.share, 0.99) << "only chunks at equal distances differ";
  EXPECT_EQ(few.counts.recall.queries, 100);
  const auto shard = retro::open_codes(few.project->path, *few.project->database, few.settings, few.codes, one_rank());
  std::int64_t common = 0, wanted = 0;
  const std::int64_t size = few.project->database->size();
  Floats vectors;
  for (std::int64_t b = 0; b < few.blocks().count(); ++b)
    for (const float x : retro::read_vectors(few.blocks(), b, few.settings)) vectors.push_back(x);
  for (const std::int64_t id : retro::drawn_ids(100, size, ~std::uint64_t(1234))) {
    const auto query = std::span(vectors).subspan(std::size_t(id * 6), 6);
    std::vector<Candidate> exact;
    for (std::int64_t other = 0; other < size; ++other) {
      double sum = 0;
      for (std::size_t k = 0; k < 6; ++k) {
        const double difference = double(vectors[std::size_t(other) * 6 + k]) - double(query[k]);
        sum += difference * difference;
      }
      if (other != id) exact.push_back({-sum, other, 0, 0});
    }
    retro::keep_best(exact, 10);
    std::set<std::int64_t> found;
    for (const auto& [score, other] : pairs_of(shard->search(query, 11)[0], 11))
      if (other != id && found.size() < 10) found.insert(other);
    for (const Candidate& c : exact) common += found.contains(c.id);
    wanted += std::int64_t(exact.size());
  }
  EXPECT_NEAR(few.counts.recall.share, double(common) / double(wanted), 1e-12);
  EXPECT_LT(few.counts.recall.share, 1);
  EXPECT_EQ(retro::read_recall(few.project->path, few.codes).share, few.counts.recall.share);
}

TEST(approximate, search_of_a_project_uses_the_codes) {
  NEEDS_FAISS();
  const CodedProject p("IVF24,Flat", 1);
  const retro::Database& database = *p.project->database;
  retro::VectorSearch search(p.project->path, database, p.settings, VectorProject::encode, one_rank());
  EXPECT_EQ(search.mark().hash, p.codes.hash());
  EXPECT_EQ(retro::index_mark_of(p.project->path, p.project->settings).hash, p.codes.hash());
  std::vector<std::vector<std::int32_t>> texts;
  for (const retro::ChunkRow& row : database.rows(0, 40)) texts.push_back(database.tokens(row));
  const auto found = search.nearest(texts, 200, 0);
  std::size_t fewer = 0;
  for (std::size_t t = 0; t < texts.size(); ++t) {
    EXPECT_EQ(found[t].front().score, 0);
    EXPECT_EQ(pairs_of(search.nearest({texts[t]}, 200, 0)[0], 200), pairs_of(found[t], 200)) << "alone and in a group";
    fewer += std::int64_t(found[t].size()) < database.size();
  }
  EXPECT_GT(fewer, 0u) << "one list of 24 does not hold all chunks";
}

TEST(approximate, contradictions_in_codes_are_named) {
  NEEDS_FAISS();
  const CodedProject p("IVF5,Flat", 2);
  const auto quantizer = retro::read_quantizer(hdf5::TableReader(p.file("trained.hdf5")).read<std::uint8_t>("quantizer"));
  std::vector<std::uint32_t> lists;
  retro::Codes codes;
  {
    const hdf5::TableReader file(p.block());
    lists = file.read<std::uint32_t>("lists"), codes = file.read<std::uint8_t>("codes", quantizer->code_bytes());
  }
  const auto named = [&](const std::vector<std::uint32_t>& l, const retro::Codes& c, const std::string& part) {
    retro::write_tables(p.block(), p.codes.hash(), 0, [&](hdf5::TableWriter& file) {
      file.add<std::uint32_t>("lists", 0, l), file.add<std::uint8_t>("codes", quantizer->code_bytes(), c);
    });
    const Error error = error_of([&] { p.make(); });
    EXPECT_EQ(error.code, Exit::data);
    EXPECT_NE(std::string(error.what()).find(p.block().filename().string() + part), std::string::npos) << error.what();
  };
  auto wrong = lists;
  wrong[3] = 5;
  named(wrong, codes, ":lists: row 3 is 5, but the index has the lists 0 to 4");
  wrong.pop_back();
  named(wrong, codes, ":lists: has");
  codes.resize(codes.size() - std::size_t(quantizer->code_bytes()));
  named(lists, codes, ":codes: has");
  fs::remove(p.block());
  EXPECT_EQ(error_of([&] { retro::open_codes(p.project->path, *p.project->database, p.settings, p.codes, one_rank()); }).code, Exit::missing);
  retro::write_tables(p.file("trained.hdf5"), p.codes.hash(), 0, [](hdf5::TableWriter& file) {
    file.add<std::uint8_t>("quantizer", 0, retro::Codes{'I', 'w', 'F'});
  });
  EXPECT_NE(std::string(error_of([&] { p.make(); }).what()).find("trained.hdf5:quantizer: faiss cannot read it"), std::string::npos);
}

TEST(approximate, random_damage_is_refused_or_harmless) {
  NEEDS_FAISS();
  Mutation mutation(seed_of_run());
  const CodedProject p("IVF5,SQ8", 2);
  for (const fs::path& file : {p.block(), p.file("trained.hdf5"), p.file("config.json"), p.file("recall.json")}) {
    const std::string bytes = contents(file);
    int refused = 0;
    for (int draw = 0; draw < 120; ++draw) {
      mutation.damage(file);
      const Error error = error_of([&] {
        const retro::CodeSettings s = retro::read_code_settings(p.project->path);
        retro::open_codes(p.project->path, *p.project->database, p.settings, s, one_rank());
        retro::read_recall(p.project->path, s);
      });
      EXPECT_TRUE(error.code == Exit::ok || error.code == Exit::data || error.code == Exit::missing || error.code == Exit::io) << error.what();
      if (error.code != Exit::ok) {
        ++refused;
        EXPECT_NE(std::string(error.what()).find("faiss"), std::string::npos) << error.what();
      }
      fs::remove_all(file);
      put_contents(file, bytes);
    }
    EXPECT_GT(refused, 5) << file;
  }
}

TEST(approximate, unsuitable_factories_are_refused) {
  NEEDS_FAISS();
  const auto refused = [](const std::string& factory, std::int64_t chunks) {
    const Error error = error_of([&] { retro::code_settings(factory, 4, {"", "", "", std::int64_t(width)}, chunks); });
    EXPECT_EQ(error.code, Exit::config) << factory;
    return std::string(error.what());
  };
  for (const char* factory : {"Flat", "HNSW32", "PQ4", "IVF16,PQ4+8", "IVF16,Flat,RFlat", "IVF16,PQ4x4fs", "LSH", "IVF16,ITQ8,SH"})
    EXPECT_NE(refused(factory, 1000).find(std::string("--index ") + factory + ": "), std::string::npos);
  EXPECT_NE(refused("nonsense", 1000).find("faiss refuses it for vectors of 8 elements"), std::string::npos);
  EXPECT_NE(refused("IVF16,PQ3", 1000).find("faiss refuses it"), std::string::npos) << "8 elements have no 3 equal parts";
  EXPECT_NE(refused("IVF32,Flat", 31).find("has 32 centroids, but the database has 31 chunks"), std::string::npos);
  EXPECT_NE(refused("IVF4,PQ4", 255).find("has 256 centroids"), std::string::npos);
  EXPECT_NE(refused("IVF4,Flat", 0).find("has 0 chunks"), std::string::npos);
}

TEST(approximate, build_without_faiss_refuses_by_name) {
  if (!retro::faiss_version().empty()) GTEST_SKIP() << "this build has faiss " << retro::faiss_version();
  for (const auto& use :
       std::vector<std::function<void()>>{retro::require_faiss, [] { retro::size_of_quantizer("IVF4,Flat", 8); },
                                          [] { retro::train_quantizer("IVF4,Flat", 8, {}, 1); }, [] { retro::read_quantizer({}); }}) {
    const Error error = error_of(use);
    EXPECT_EQ(error.code, Exit::config);
    EXPECT_NE(std::string(error.what()).find("install libfaiss-dev"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace gyr::testing::approximate_suite
