// SPDX-License-Identifier: BSD-3-Clause
// Damaged retrieval projects: every contradiction in a file is refused with file, dataset and row, and random damage of
// any file gives an error that names the file, never a crash.
#include "regression/support/mutation.hpp"
#include "regression/support/retro.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::retro_damage_suite {
namespace {

namespace fs = std::filesystem;
using Numbers = std::vector<std::uint64_t>;

// A small project with a block of every kind, and a copy that tests damage.
class Damaged {
 public:
  Damaged() {
    std::mt19937 random(7);
    write_token_files(folder_ / "a", drawn_documents(random, 12, 20, 9), TokenType::u16);
    retro::ProjectSettings settings = plain_settings({folder_ / "a"}, 4, 1000);
    settings.split = "1";
    const RetroProject project(folder_ / "p", settings);
    queries_ = project.queries(8, "shuffled", 0);
    queries_.saved = 2;
    project.find(queries_);
    sound_ = files_below(folder_ / "p");
  }
  const fs::path path() const { return folder_ / "p"; }
  const retro::QuerySettings& queries() const { return queries_; }
  const std::map<std::string, std::string>& files() const { return sound_; }
  fs::path file(const std::string& part) const {
    for (const auto& [name, bytes] : sound_)
      if (name.find(part) != std::string::npos) return path() / name;
    ensure(false, "no file has {} in its name", part);
    return {};
  }
  void restore() const {
    for (const auto& [name, bytes] : sound_) fs::remove_all(path() / name), put_contents(path() / name, bytes);
  }

  // Opens and checks everything that the project has, as the commands do.
  Error opened() const {
    return error_of([&] {
      const retro::ProjectSettings settings = retro::read_settings(path());
      const retro::Corpora corpora(settings);
      retro::require_unchanged(settings.corpora[0], corpora.file(0), retro::config_path(path()));
      retro::build_database(path(), settings, corpora, one_rank());
      const retro::Database database(path(), settings, corpora);
      retro::build_index(path(), database, 0.1, one_rank(), [](const retro::IndexCounts&) {});
      retro::check_project(path(), database, 1, 1, one_rank());
    });
  }

 private:
  Folder folder_;
  retro::QuerySettings queries_;
  std::map<std::string, std::string> sound_;
};

const Damaged& damaged() {
  static const Damaged project;
  return project;
}

// Copies all tables of a file, one of them with other values, as a program without our checks might write it.
template <class T>
void change(const fs::path& path, const std::string& table, Index columns, const std::function<void(std::vector<T>&)>& edit) {
  struct Known {
    const char* name;
    hdf5::Element element;
    Index columns;
  };
  static const Known known[] = {{"chunks_valid", hdf5::Element::u32, 4}, {"chunks_invalid", hdf5::Element::u32, 4},
                                {"doc_offsets", hdf5::Element::u64, 2},  {"doc_offsets", hdf5::Element::u64, 3},
                                {"chunks", hdf5::Element::u32, 5},       {"n_written", hdf5::Element::u64, 0},
                                {"tokens", hdf5::Element::u32, 0},       {"chunks", hdf5::Element::u64, 0},
                                {"totals", hdf5::Element::u64, 0},       {"offsets", hdf5::Element::u64, 0},
                                {"ids", hdf5::Element::u32, 0},          {"frequencies", hdf5::Element::u8, 0},
                                {"lengths", hdf5::Element::u32, 0},      {"neighbors", hdf5::Element::i64, 2},
                                {"scores", hdf5::Element::f32, 2}};
  std::vector<std::function<void(hdf5::TableWriter&)>> writes;
  bool edited = false;
  const auto copy = [&]<class E>(E, const hdf5::TableReader& from, const std::string& name, Index width) {
    std::vector<E> values = from.read<E>(name, width);
    if constexpr (std::is_same_v<E, T>)
      if (name == table && width == columns) edit(values), edited = true;
    writes.push_back([=](hdf5::TableWriter& to) { to.add<E>(name, width, values); });
  };
  {
    const hdf5::TableReader from(path);
    if (from.has("common")) writes.push_back([common = from.text("common")](hdf5::TableWriter& to) { to.set("common", common); });
    writes.push_back([hash = from.text("depends_on")](hdf5::TableWriter& to) { to.set("depends_on", hash); });
    for (const Known& k : known)
      error_of([&] {  // an error: the file has no such table
        if (k.element == hdf5::Element::u8) copy(std::uint8_t(), from, k.name, k.columns);
        if (k.element == hdf5::Element::u32) copy(std::uint32_t(), from, k.name, k.columns);
        if (k.element == hdf5::Element::u64) copy(std::uint64_t(), from, k.name, k.columns);
        if (k.element == hdf5::Element::i64) copy(std::int64_t(), from, k.name, k.columns);
        if (k.element == hdf5::Element::f32) copy(float(), from, k.name, k.columns);
      });
  }
  ASSERT_TRUE(edited) << path << " has no table " << table;
  hdf5::TableWriter to(path);
  for (const auto& write : writes) write(to);
  to.close();
}

void expect_named(const fs::path& path, const std::string& part) {
  const Error error = damaged().opened();
  EXPECT_EQ(error.code, Exit::data) << error.what();
  EXPECT_NE(std::string(error.what()).find(path.filename().string() + part), std::string::npos) << part << "\n" << error.what();
  damaged().restore();
}

TEST(retro_damage, undamaged_project_is_accepted) { EXPECT_EQ(damaged().opened().code, Exit::ok) << damaged().opened().what(); }

TEST(retro_damage, contradictions_in_the_database_are_named) {
  using U32 = std::vector<std::uint32_t>;
  const fs::path merged = damaged().file("merged"), block = damaged().file("db/0-a/");
  change<std::uint32_t>(merged, "chunks", 5, [](U32& v) { v[5 * 2 + 1] = 12; });
  expect_named(merged, ":chunks: row 2 names document 12 of corpus 0, which does not exist");
  change<std::uint32_t>(merged, "chunks", 5, [](U32& v) { v[5 * 3] = 1; });
  expect_named(merged, ":chunks: row 3 names document");
  change<std::uint32_t>(merged, "chunks", 5, [](U32& v) { v[5 * 1 + 3] = 21; });
  expect_named(merged, ":chunks: row 1 is tokens");
  change<std::uint32_t>(merged, "chunks", 5, [](U32& v) { v[5 * 1 + 4] = 0; });
  expect_named(merged, ":chunks: row 1 is tokens");
  change<std::uint64_t>(merged, "n_written", 0, [](Numbers& v) { v[0] += 1; });
  expect_named(merged, ":n_written: row 0 is");
  change<std::uint64_t>(merged, "doc_offsets", 3, [](Numbers& v) { v[3 * 11 + 2] = v[3 * 10 + 2] + 99; });
  expect_named(merged, ":doc_offsets: row 11");
  change<std::uint64_t>(merged, "doc_offsets", 3, [](Numbers& v) { v.resize(v.size() - 3); });
  expect_named(merged, ":doc_offsets: has 11 rows, but the project has 12");
  change<std::uint64_t>(block, "doc_offsets", 2, [](Numbers& v) { v[2 * 4] = 5; });
  expect_named(block, ":doc_offsets: row 4 is document 5");
  change<std::uint64_t>(block, "doc_offsets", 2, [](Numbers& v) { v[2 * 11 + 1] = 0; });
  expect_named(block, ":doc_offsets: row 11");
  change<std::uint32_t>(block, "chunks_valid", 4, [](U32& v) { v[0] = 11; });
  expect_named(block, ":chunks_valid: row 0 is not of document");
}

TEST(retro_damage, contradictions_in_the_index_are_named) {
  using U32 = std::vector<std::uint32_t>;
  const fs::path statistics = damaged().file("statistics"), block = damaged().file("index/bm25/0");
  change<std::uint32_t>(block, "tokens", 0, [](U32& v) { v[1] = v[0]; });
  expect_named(block, ":tokens: row 1 does not ascend");
  change<std::uint64_t>(block, "offsets", 0, [](Numbers& v) { v[1] = v[2] + 1; });
  expect_named(block, ":offsets: row 2 is");
  change<std::uint64_t>(block, "offsets", 0, [](Numbers& v) { v[0] = 1; });
  expect_named(block, ":offsets: row 0 is 1");
  change<std::uint32_t>(block, "ids", 0, [](U32& v) { v[0] = 5000; });
  expect_named(block, ":ids: row 0 leads to chunk 5000");
  change<std::uint32_t>(block, "ids", 0, [](U32& v) { v[1] = 0; });
  expect_named(block, ":ids: row 1 leads to chunk");
  change<std::uint8_t>(block, "frequencies", 0, [](std::vector<std::uint8_t>& v) { v[2] = 0; });
  expect_named(block, ":frequencies: row 2 is 0");
  change<std::uint8_t>(block, "frequencies", 0, [](std::vector<std::uint8_t>& v) { v.pop_back(); });
  expect_named(block, ":frequencies: has");
  change<std::uint32_t>(block, "lengths", 0, [](U32& v) { v[3] += 1; });
  expect_named(block, ":lengths: row 3 is");
  change<std::uint64_t>(statistics, "chunks", 0, [](Numbers& v) { v[1] = 5000; });
  expect_named(statistics, ":chunks: row 1 is 5000");
  change<std::uint64_t>(statistics, "totals", 0, [](Numbers& v) { v[0] += 1; });
  expect_named(statistics, ":totals: row 0 is");
}

TEST(retro_damage, contradictions_in_neighbours_are_named) {
  using Ids = std::vector<std::int64_t>;
  using Scores = std::vector<float>;
  const fs::path file = damaged().file("query/train-");
  change<std::int64_t>(file, "neighbors", 2, [](Ids& v) { v[2 * 3] = 5000; });
  expect_named(file, ":neighbors: row 3 names chunk 5000");
  change<std::int64_t>(file, "neighbors", 2, [](Ids& v) { v[2 * 1 + 1] = -2; });
  expect_named(file, ":neighbors: row 1 names chunk -2");
  change<float>(file, "scores", 2, [](Scores& v) { v[2 * 2] = 0; });
  change<std::int64_t>(file, "neighbors", 2, [](Ids& v) { v[2 * 2] = -1; });
  expect_named(file, ":neighbors: row 2 has chunk");
  change<float>(file, "scores", 2, [](Scores& v) { v[2 * 2] = std::numeric_limits<float>::quiet_NaN(); });
  expect_named(file, ":scores: row 2 has nan");
  change<float>(file, "scores", 2, [](Scores& v) { v.pop_back(), v.pop_back(); });
  expect_named(file, ":scores: has");
  change<std::int64_t>(file, "neighbors", 2, [](Ids& v) { v.pop_back(), v.pop_back(); });
  expect_named(file, ":neighbors: has");
}

// Any damage is either harmless or refused with a message that names the file.
TEST(retro_damage, random_damage_is_refused_or_harmless) {
  Mutation mutation(seed_of_run());
  std::map<std::string, int> refused;
  for (const auto& [name, bytes] : damaged().files()) {
    for (int draw = 0; draw < 120; ++draw) {
      const fs::path file = damaged().path() / name;
      std::string what;
      if (name.ends_with(".json") || draw % 10 == 0) what = mutation.damage(file);
      else {
        std::string damage = bytes;
        for (unsigned n = mutation.up_to(3) + 1; n > 0; --n) damage[mutation.up_to(unsigned(bytes.size() - 1))] = char(mutation.up_to(255));
        put_contents(file, damage);
      }
      const Error error = damaged().opened();
      EXPECT_TRUE(error.code == Exit::ok || error.code == Exit::data || error.code == Exit::missing || error.code == Exit::io ||
                  error.code == Exit::config)
          << name << " " << what << ": " << int(error.code) << " " << error.what();
      if (error.code != Exit::ok) ++refused[name];
      damaged().restore();
    }
  }
  for (const auto& [name, bytes] : damaged().files()) EXPECT_GT(refused[name], 5) << name;
}

}  // namespace
}  // namespace gyr::testing::retro_damage_suite
