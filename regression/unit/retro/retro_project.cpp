// SPDX-License-Identifier: BSD-3-Clause
// Retrieval projects: chunks cover the documents, neighbours are of no document of their sample, missing files
// are rebuilt with the same bytes, and other settings are refused.
#include <numeric>

#include "regression/support/file_size_limit.hpp"
#include "regression/support/retro.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/retro/cut.hpp"
#include "src/retro/summary.hpp"

namespace gyr::testing::retro_project_suite {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t end_token = 3;

// Two corpora, the first with a loss mask, whose documents often end with the end token.
struct Drawn {
  explicit Drawn(std::mt19937& random, std::int64_t block = 0) {
    a = drawn_documents(random, 40, 50, 30), b = drawn_documents(random, 15, 70, 30);
    for (TokenLists* lists : {&a, &b})
      for (auto& document : *lists)
        if (random() % 2) document.push_back(end_token);
    write_token_files(folder / "a", a, TokenType::u16), write_token_files(folder / "b", b, TokenType::i32);
    mask = a;
    for (auto& document : mask)
      for (std::size_t i = 0; i < document.size(); ++i) document[i] = std::int32_t(i / 8 % 2);
    write_token_files(folder / "a_mask", mask, TokenType::u8);
    settings = plain_settings({folder / "a", folder / "b"}, 2 + std::int64_t(random() % 9), block > 0 ? block : 9 + std::int64_t(random() % 40));
    settings.end = end_token, settings.special = {1, end_token};
  }
  Folder folder;
  TokenLists a, b, mask;
  retro::ProjectSettings settings;
};

// The chunks that a document must have, from their definition.
std::vector<retro::Piece> expected_pieces(const retro::ProjectSettings& s, std::vector<std::int32_t> tokens, const std::vector<std::int32_t>* mask) {
  if (!tokens.empty() && tokens.back() == end_token) tokens.pop_back();
  std::vector<retro::Piece> pieces;
  for (std::size_t at = 0; at < tokens.size(); at += std::size_t(s.chunk)) {
    const std::size_t last = std::min(tokens.size(), at + std::size_t(s.chunk));
    const auto is_term = [](std::int32_t t) { return t != 1 && t != end_token; };
    const auto terms = std::count_if(tokens.begin() + std::ptrdiff_t(at), tokens.begin() + std::ptrdiff_t(last), is_term);
    const bool target = !mask || std::count(mask->begin() + std::ptrdiff_t(at), mask->begin() + std::ptrdiff_t(last), 1) > 0;
    if (terms > 0 && target) pieces.push_back({std::int64_t(at), std::int64_t(last), terms, true});
  }
  return pieces;
}

TEST(retro_project, chunks_are_the_pieces_of_training_documents) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 5; ++draw) {
    Drawn drawn(random);
    if (draw % 2) drawn.settings.all = true, drawn.settings.split = "";
    const RetroProject project(drawn.folder / "p", drawn.settings);
    std::vector<retro::ChunkRow> expected;
    std::int64_t documents = 0, id = 0;
    for (std::size_t c = 0; c < 2; ++c) {
      const TokenLists& lists = c == 0 ? drawn.a : drawn.b;
      const auto training = std::int64_t(draw % 2 ? double(lists.size()) : std::nearbyint(0.9 * double(lists.size())));
      for (std::int64_t d = 0; d < training; ++d, ++documents) {
        const auto pieces = expected_pieces(drawn.settings, lists[std::size_t(d)], c == 0 ? &drawn.mask[std::size_t(d)] : nullptr);
        const auto place = project.database->document(documents);
        EXPECT_EQ(std::tuple(place.corpus, place.document, place.first, place.last), std::tuple(c, d, id, id + std::int64_t(pieces.size())));
        for (const retro::Piece& p : pieces)
          expected.push_back({std::uint32_t(c), std::uint32_t(d), std::uint32_t(p.first), std::uint32_t(p.last), std::uint32_t(p.terms)});
        id += std::int64_t(pieces.size());
      }
    }
    ASSERT_EQ(project.database->size(), std::int64_t(expected.size()));
    EXPECT_EQ(project.database->documents(), documents);
    EXPECT_EQ(project.counts.chunks, id);
    const auto rows = project.database->rows(0, id);
    for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(std::memcmp(&rows[i], &expected[i], sizeof rows[i]), 0) << "chunk " << i;
  }
}

TEST(retro_project, windows_are_the_samples_of_every_epoch) {
  std::mt19937 random(seed_of_run());
  const Drawn drawn(random);
  const TokenFile file(drawn.folder / "a");
  const auto samples = shuffled_samples(file, {0, file.sequences()}, 7, random());
  const auto text_of = [](const std::vector<Extract>& parts) {
    std::string text;
    for (const Extract& p : parts) text += fmt::format("{}:{}:{} ", p.sequence, p.offset, p.count);
    return text;
  };
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::multiset<std::string> windows, read;
    for (std::int64_t w = 0; w < samples->per_epoch(); ++w) {
      windows.insert(text_of(samples->window(w)));
      read.insert(text_of(samples->extracts(epoch * samples->per_epoch() + w)));
    }
    EXPECT_GT(windows.size(), 20u);
    EXPECT_EQ(windows, read);
  }
}

// A chunk of a document of the sample would let a model copy its answer.
TEST(retro_project, neighbours_are_of_no_document_of_their_sample) {
  std::mt19937 random(seed_of_run());
  for (const std::string order : {"shuffled", "megatron"}) {
    const Drawn drawn(random);
    const RetroProject project(drawn.folder / "p", drawn.settings);
    retro::QuerySettings s = project.queries(7 + std::int64_t(random() % 9), order, 40);
    s.candidates = 30, s.saved = 4;
    const fs::path folder = project.find(s);
    const Dataset data(s.dataset());
    const retro::QuerySamples samples(s, project.settings, "config.json");
    EXPECT_EQ(samples.size(), order == "megatron" ? 40 : data.per_epoch(0) + data.per_epoch(1));
    const retro::Blocks blocks = retro::neighbour_blocks(folder, s, samples.chunks());
    std::int64_t chunk = 0, present = 0, own = 0;
    for (std::int64_t b = 0; b < blocks.count(); ++b) {
      const retro::NeighbourRows rows = retro::read_neighbours(blocks, b, s, project.database->size());
      for (std::size_t i = 0; i < rows.ids.size(); i += 4, ++chunk) {
        std::set<std::pair<std::size_t, std::int64_t>> documents;  // of the sample, from the order of samples
        const std::int64_t sample = chunk / s.chunks_per_sample();
        const std::int64_t corpus = order == "megatron" ? data.extracts(sample).first : sample >= data.per_epoch(0);
        const auto parts = order == "megatron" ? data.extracts(sample).second : data.window(corpus, sample - (corpus == 1 ? data.per_epoch(0) : 0));
        for (const Extract& part : parts) documents.emplace(std::size_t(corpus), part.sequence);
        for (std::size_t k = i; k < i + 4; ++k) {
          if (rows.ids[k] < 0) continue;
          const retro::ChunkRow row = project.database->rows(rows.ids[k], 1)[0];
          ++present, own += documents.contains({row.corpus, row.document});
        }
      }
    }
    EXPECT_EQ(chunk, samples.chunks());
    EXPECT_GT(present, chunk / 2) << "the draw has too few neighbours to show anything";
    EXPECT_EQ(own, 0);
  }
}

// With separate documents, the query of a chunk and its continuation have only tokens of the document of the chunk's last token.
TEST(retro_project, queries_leave_out_other_packed_documents) {
  std::mt19937 random(seed_of_run());
  const Folder folder;
  write_token_files(folder / "a", drawn_documents(random, 80, 25, 30), TokenType::u16);
  const RetroProject project(folder / "p", plain_settings({folder / "a"}, 4, 50));
  retro::QuerySettings s = project.queries(12, "megatron", 20);
  const std::string joined = s.hash();
  s.separate = true;
  EXPECT_NE(s.hash(), joined);
  EXPECT_EQ(retro::read_query_settings(project.find(s)).hash(), s.hash());
  DatasetOptions options = s.dataset();
  options.separate = true;
  const Dataset data(options);
  const retro::QuerySamples samples(s, project.settings, "config.json");
  int shorter = 0;
  for (std::int64_t number = 0; number < 20; ++number) {
    const Sample full = data.sample(number);
    const auto part = [&](Index first, Index last) { return std::vector(full.tokens.begin() + first, full.tokens.begin() + last); };
    const auto sample = samples.sample(number);
    for (Index chunk = 0; chunk < 3; ++chunk) {
      const Index last = 4 * chunk + 3, first = std::max<Index>(4 * chunk, last - full.positions[std::size_t(last)]);
      Index end = last + 1;
      while (end < std::min<Index>(last + 5, 13) && full.positions[std::size_t(end)] > 0) ++end;
      EXPECT_EQ(sample.chunks[std::size_t(chunk)], part(first, last + 1)) << "sample " << number << " chunk " << chunk;
      EXPECT_EQ(sample.continuations[std::size_t(chunk)], part(last + 1, end)) << "sample " << number << " chunk " << chunk;
      shorter += first > 4 * chunk;
    }
  }
  EXPECT_GT(shorter, 0);
}

TEST(retro_project, neighbours_are_the_first_candidates_that_remain) {
  std::mt19937 random(seed_of_run());
  for (int draw = 0; draw < 50; ++draw) {
    std::vector<retro::Candidate> candidates;
    for (std::int64_t id = 0; id < std::int64_t(random() % 20); ++id) candidates.push_back({double(20 - id), id, 0, std::uint32_t(random() % 6)});
    std::vector<retro::Place> documents;
    for (std::uint32_t d = 0; d < 6; ++d)
      if (random() % 3 == 0) documents.push_back({0, d});
    const auto kept = retro::filtered(candidates, documents, 5);
    std::vector<std::int64_t> ids, expected;
    for (const retro::Candidate& c : kept) ids.push_back(c.id);
    for (const retro::Candidate& c : candidates)
      if (expected.size() < 5 && std::count(documents.begin(), documents.end(), retro::Place{0, c.document}) == 0) expected.push_back(c.id);
    EXPECT_EQ(ids, expected);
  }
}

TEST(retro_project, shared_runs_are_found_in_drawn_texts) {
  std::mt19937 random(seed_of_run());
  int shared = 0;
  for (int draw = 0; draw < 300; ++draw) {
    std::vector<std::int32_t> a(random() % 12), b(random() % 12);
    for (auto* text : {&a, &b})
      for (std::int32_t& token : *text) token = std::int32_t(random() % 3);
    const std::size_t n = 1 + random() % 5;
    bool expected = false;
    for (std::size_t i = 0; i + n <= a.size(); ++i)
      for (std::size_t j = 0; j + n <= b.size(); ++j) {
        std::size_t equal = 0;
        while (equal < n && a[i + equal] == b[j + equal]) ++equal;
        expected |= equal == n;
      }
    EXPECT_EQ(retro::share_a_run(a, b, std::int64_t(n)), expected) << "n " << n;
    shared += expected;
  }
  EXPECT_TRUE(shared > 50 && shared < 250) << shared;
}

// Document 2 repeats what follows the first chunk of document 0, document 3 only the chunk itself.
TEST(retro_project, overlap_leaves_out_copies_of_the_continuation) {
  const Folder folder;
  const TokenLists lists{{5, 6, 7, 8, 9, 10, 11, 12}, {40, 41, 42, 43, 44, 45, 46, 47}, {5, 6, 7, 20, 9, 10, 11, 21}, {5, 6, 7, 8, 30, 31, 32, 33}};
  write_token_files(folder / "a", lists, TokenType::u16);
  retro::ProjectSettings settings = plain_settings({folder / "a"}, 4, 10);
  settings.split = "1";
  const RetroProject project(folder / "p", settings);
  const auto first_neighbours = [&](std::int64_t overlap) {
    retro::QuerySettings s = project.queries(8, "shuffled", 0);
    s.saved = 4, s.overlap = overlap;
    const fs::path to = project.find(s);
    EXPECT_EQ(retro::read_query_settings(to).overlap, overlap);
    const retro::QuerySamples samples(s, project.settings, to / "config.json");
    const auto rows = retro::read_neighbours(retro::neighbour_blocks(to, s, samples.chunks()), 0, s, project.database->size());
    return std::vector(rows.ids.begin(), rows.ids.begin() + 4);
  };
  EXPECT_EQ(first_neighbours(0), (std::vector<std::int64_t>{6, 4, -1, -1}));
  EXPECT_EQ(first_neighbours(3), (std::vector<std::int64_t>{6, -1, -1, -1})) << "chunk 4 and its continuation have 9, 10, 11";
  EXPECT_EQ(first_neighbours(4), (std::vector<std::int64_t>{6, 4, -1, -1}));
  EXPECT_GT(retro::check_project(project.path, *project.database, 1, 1, one_rank()).queries, 0);
}

TEST(retro_project, chunks_without_candidates_have_no_neighbours) {
  const Folder folder;
  write_token_files(folder / "a", {{5, 6, 7, 8, 9, 10, 11, 12, 13}}, TokenType::u16);
  retro::ProjectSettings settings = plain_settings({folder / "a"}, 4, 10);
  settings.split = "1";
  const RetroProject project(folder / "p", settings);
  retro::QuerySettings s = project.queries(8, "shuffled", 0);
  const fs::path to = project.find(s);
  const retro::NeighbourRows rows = retro::read_neighbours(retro::neighbour_blocks(to, s, 2), 0, s, project.database->size());
  EXPECT_EQ(rows.ids, std::vector<std::int64_t>(2 * 20, -1));
  EXPECT_EQ(rows.scores, std::vector<float>(2 * 20, 0));
}

TEST(retro_project, empty_database_gives_missing_neighbours) {
  const Folder folder;
  write_token_files(folder / "empty", {{}, {}}, TokenType::u16);
  write_token_files(folder / "a", {{5, 6, 7, 8, 9}}, TokenType::u16);
  const RetroProject project(folder / "p", plain_settings({folder / "empty"}, 4, 10));
  EXPECT_EQ(project.database->size(), 0);
  retro::QuerySettings s = project.queries(4, "shuffled", 0);
  s.corpora = {retro::corpus_mark(TokenFile(folder / "a"))}, s.split = "1";
  const fs::path to = project.find(s);
  EXPECT_EQ(retro::read_neighbours(retro::neighbour_blocks(to, s, 1), 0, s, 0).ids, std::vector<std::int64_t>(20, -1));
  EXPECT_NE(retro::project_summary(project.path, *project.database, "").find("0 of at most 4 tokens"), std::string::npos);
}

TEST(retro_project, missing_files_are_rebuilt_with_equal_bytes) {
  std::mt19937 random(seed_of_run());
  const Drawn drawn(random, 7);
  const fs::path path = drawn.folder / "p";
  const auto make = [&] {
    const RetroProject project(path, drawn.settings);
    project.find(project.queries(16, "shuffled", 0));
  };
  make();
  const auto before = files_below(path);
  EXPECT_GT(before.size(), 15u);
  for (int draw = 0; draw < 5; ++draw) {
    std::string removed;
    for (const auto& [name, bytes] : before)
      if (name != "config.json" && random() % 3 == 0) fs::remove(path / name), removed += name + " ";
    put_contents(path / "index/bm25/0-7.hdf5.tmp", "left by a killed run");
    make();
    fs::remove(path / "index/bm25/0-7.hdf5.tmp");
    EXPECT_TRUE(files_below(path) == before) << "after removal of " << removed;
  }
}

TEST(retro_project, full_disk_leaves_a_project_that_continues) {
  std::mt19937 random(seed_of_run());
  const Drawn drawn(random, 10);
  const RetroProject reference(drawn.folder / "p", drawn.settings);
  for (int draw = 0; draw < 4; ++draw) {
    const fs::path path = drawn.folder / fmt::format("full{}", draw);
    retro::prepare_folder(path);
    retro::make_project(path, drawn.settings);
    const retro::Corpora corpora(drawn.settings);
    const rlim_t limit = 200 + random() % 3000;  // bytes of a file
    const Error error = error_of([&] {
      const FileSizeLimit full(limit);
      retro::build_database(path, drawn.settings, corpora, one_rank());
    });
    EXPECT_EQ(error.code, Exit::io) << "at " << limit << " bytes: " << error.what();
    EXPECT_NE(std::string(error.what()).find(".hdf5.tmp"), std::string::npos) << error.what();
    for (const auto& [name, bytes] : files_below(path)) EXPECT_FALSE(name.ends_with(".tmp")) << name;
    const RetroProject again(path, drawn.settings);
    EXPECT_TRUE(files_below(path) == files_below(reference.path)) << "at " << limit << " bytes";
  }
}

TEST(retro_project, settings_that_differ_are_refused_with_both_values) {
  std::mt19937 random(seed_of_run());
  const Drawn drawn(random, 9);
  const RetroProject project(drawn.folder / "p", drawn.settings);
  const auto refused = [&](const std::string& part, const std::function<void(retro::ProjectSettings&)>& change) {
    retro::ProjectSettings other = drawn.settings;
    change(other);
    const Error error = error_of([&] { retro::make_project(project.path, other); });
    EXPECT_EQ(error.code, Exit::config);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  };
  refused("was made with block = 9, but this command has 8", [](auto& s) { s.block = 8; });
  refused("was made with database = train, but this command has all", [](auto& s) { s.all = true, s.split = ""; });
  refused("was made with split = 90,10,0, but this command has 1", [](auto& s) { s.split = "1"; });
  refused("was made with special tokens = 1,3, but this command has 3", [](auto& s) { s.special = {3}; });
  refused("was made with end token = 3, but this command has none", [](auto& s) { s.end = {}; });
  refused("was made with number of corpora = 2, but this command has 1", [](auto& s) { s.corpora.pop_back(); });
  refused("corpus 1: documents = 15, but this command has 14", [](auto& s) { s.corpora[1].documents = 14; });
  const Error common = error_of([&] { retro::build_index(project.path, *project.database, 0.2, one_rank(), [](const retro::IndexCounts&) {}); });
  EXPECT_EQ(common.code, Exit::config);
  EXPECT_NE(std::string(common.what()).find("was made with common = 0.1, but this command has 0.2"), std::string::npos) << common.what();
}

TEST(retro_project, changed_token_files_are_refused) {
  std::mt19937 random(seed_of_run());
  Drawn drawn(random);
  const RetroProject project(drawn.folder / "p", drawn.settings);
  drawn.b.push_back({5, 6});
  write_token_files(drawn.folder / "b", drawn.b, TokenType::i32);
  const Error error =
      error_of([&] { retro::require_unchanged(project.settings.corpora[1], TokenFile(drawn.folder / "b"), retro::config_path(project.path)); });
  EXPECT_EQ(error.code, Exit::data);
  EXPECT_NE(std::string(error.what()).find("documents = 15, but this command has 16; the token files have changed"), std::string::npos)
      << error.what();
}

TEST(retro_project, queries_with_another_tokenizer_are_refused) {
  std::mt19937 random(seed_of_run());
  Drawn drawn(random);
  drawn.settings.tokenizer = {"one.json", 10, "00000000000000aa", 30};
  const RetroProject project(drawn.folder / "p", drawn.settings);
  const TokenFile file(drawn.folder / "b");
  Fingerprint other;
  other.tokenizer = {"other.json", 20, "00000000000000bb", 30};
  other.documents = file.documents(), other.tokens = file.tokens();
  put_contents(fingerprint_path(drawn.folder / "b"), text_of(other));
  retro::QuerySettings s = project.queries(8, "shuffled", 0);
  s.corpora = {retro::corpus_mark(file)}, s.weights.clear();
  const Error error = error_of([&] { retro::QuerySamples(s, project.settings, "config.json"); });
  EXPECT_EQ(error.code, Exit::data);
  EXPECT_NE(std::string(error.what()).find("with the tokenizer other.json (XXH3 00000000000000bb), but the project with one.json"), std::string::npos)
      << error.what();
}

// Rewrites a block of neighbours with one other value, as a program without our checks might.
TEST(retro_project, check_finds_one_changed_neighbour) {
  std::mt19937 random(seed_of_run());
  const Drawn drawn(random, 20);
  const RetroProject project(drawn.folder / "p", drawn.settings);
  retro::QuerySettings s = project.queries(12, "shuffled", 0);
  s.saved = 3;
  const fs::path folder = project.find(s);
  const auto counts = retro::check_project(project.path, *project.database, 1, 1, one_rank());
  const retro::QuerySamples samples(s, project.settings, "config.json");
  EXPECT_EQ(counts.queries, samples.chunks());
  EXPECT_EQ(counts.documents, project.database->documents());
  const auto some = retro::check_project(project.path, *project.database, 0.3, 1, one_rank());
  EXPECT_GT(some.queries, 0);
  EXPECT_LT(some.queries, samples.chunks());
  const retro::Blocks blocks = retro::neighbour_blocks(folder, s, samples.chunks());
  const std::int64_t block = std::int64_t(random() % std::uint64_t(blocks.count()));
  retro::NeighbourRows rows = retro::read_neighbours(blocks, block, s, project.database->size());
  std::size_t at = random() % rows.ids.size();
  while (rows.ids[at] < 0) at = (at + 1) % rows.ids.size();
  rows.ids[at] = (rows.ids[at] + 1) % project.database->size();
  retro::write_tables(blocks.file(block), s.hash(), 0, [&](hdf5::TableWriter& file) {
    file.add<std::int64_t>("neighbors", s.saved, rows.ids), file.add<float>("scores", s.saved, rows.scores);
  });
  const Error error = error_of([&] { retro::check_project(project.path, *project.database, 1, 1, one_rank()); });
  EXPECT_EQ(error.code, Exit::data);
  const std::string part = fmt::format("{}:neighbors: row {} (", blocks.file(block).filename().string(), at / 3);
  EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  EXPECT_NE(std::string(error.what()).find(fmt::format("has chunk {} in column {}", rows.ids[at], at % 3)), std::string::npos) << error.what();
}

}  // namespace
}  // namespace gyr::testing::retro_project_suite
