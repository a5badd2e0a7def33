// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon retro: equal bytes on any number of ranks and after kills, results of a planted text, the lock of a project,
// and messages for wrong arguments.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <map>
#include <random>

#include "regression/support/folder.hpp"
#include "regression/support/process.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/trials.hpp"

namespace gyr::testing::retro_suite {

namespace fs = std::filesystem;

namespace {

// Documents of drawn words. Document 17 has a sentence that no other has.
std::string drawn_text() {
  std::mt19937 random(3);
  std::string text;
  for (int document = 0; document < 60; ++document) {
    if (document == 17) text += "the red heron counts silver umbrellas. ";
    for (int word = 0; word < 40; ++word) text += fmt::format("w{} ", std::min(random() % 80, random() % 80));
    text.back() = '\n';
    text += "\n";
  }
  return text;
}

// A corpus, its tokenizer and a deck, made once; and the project of one rank.
struct Texts {
  Folder folder;
  fs::path tokenizer = folder / "tokenizer.json", prefix = folder / "text", deck = folder / "deck.yaml", one = folder / "one";

  Texts() {
    put_contents(folder / "text.txt", drawn_text());
    must({"tokenizer", "train", tokenizer, folder / "text.txt", "--vocab-size", "330"});
    must({"data", "build", folder / "text.txt", prefix, "--tokenizer", tokenizer, "--documents", "separator"});
    put_contents(
        deck, fmt::format("data: {{prefixes: [{}], split: \"90,10,0\"}}\ntrain: {{seq_length: 48}}\nmodel: {{vocab_size: 330}}\n", prefix.string()));
    for (const Words& words : steps(one)) must(words);
  }
  // The commands that make a project.
  std::vector<Words> steps(const fs::path& project) const {
    return {{"retro", "build-db", project, deck, "--chunk", "16", "--block", "20"}, {"retro", "index", project}, {"retro", "query", project, deck}};
  }
  static void must(const Words& words) {
    const Result r = run(words);
    ensure(r.code == 0, "gyrfalcon {} {}: {}", words[0], words[1], output_of(r));
  }
};

const Texts& texts() {
  static const Texts all;
  return all;
}

// Files of a project and their contents, without the lock.
std::map<std::string, std::string> files_of(const fs::path& project) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(project))
    if (entry.is_regular_file() && entry.path().filename() != "lock") files[fs::relative(entry.path(), project)] = contents(entry.path());
  return files;
}

void expect_same_files(const fs::path& project, const std::string& what) {
  const auto expected = files_of(texts().one), files = files_of(project);
  for (const auto& [name, bytes] : expected) {
    ASSERT_TRUE(files.contains(name)) << what << ": " << name << " is missing";
    EXPECT_TRUE(files.at(name) == bytes) << what << ": " << name << " has other bytes";
  }
  for (const auto& [name, bytes] : files) EXPECT_TRUE(expected.contains(name)) << what << ": " << name << " is too much";
}

void expect_refused(const Words& words, Exit code, const std::string& part, const Options& options = {}) {
  const Result r = run(words, options);
  EXPECT_EQ(r.code, int(code)) << output_of(r);
  EXPECT_NE(r.err.find(part), std::string::npos) << output_of(r);
}

}  // namespace

TEST(retro, projects_are_equal_on_any_number_of_ranks) {
  EXPECT_GT(files_of(texts().one).size(), 20u);
  for (const int ranks : {2, 3, 8}) {
    const fs::path project = texts().folder / fmt::format("ranks{}", ranks);
    for (const Words& words : texts().steps(project)) {
      const Result r = run(words, {.ranks = ranks});
      ASSERT_EQ(r.code, 0) << output_of(r);
    }
    expect_same_files(project, fmt::format("{} ranks", ranks));
  }
}

TEST(retro, killed_commands_continue_with_equal_bytes) {
  std::mt19937 random(seed_of_run());
  Trials trials("kill of a retro command");
  const char* const stages[] = {"begun", "filled", "written", "renamed"};
  for (int draw = 0; draw < 4; ++draw) {
    const fs::path project = texts().folder / fmt::format("killed{}", draw);
    const int ranks = draw % 2 == 0 ? 1 : 2;
    trials.attempt([&] {
      for (const Words& words : texts().steps(project)) {
        const std::string point = fmt::format("retro-{}:{}:{}", stages[random() % 4], random() % unsigned(ranks), random() % 3);
        const Result killed = run(words, {.ranks = ranks, .env = {{"GYR_FAULT_POINT", point}}});
        const Result again = run(words, {.ranks = draw % 3 + 1});
        ASSERT_EQ(again.code, 0) << point << "\n" << output_of(killed) << output_of(again);
      }
      expect_same_files(project, fmt::format("draw {}", draw));
    });
  }
}

TEST(retro, search_finds_the_planted_sentence_first) {
  const Result r = run({"retro", "search", texts().one, "--text", "silver umbrellas of a red heron", "-k", "3"}, {.ranks = 2});
  ASSERT_EQ(r.code, 0) << output_of(r);
  const Words lines = lines_of(r.out);
  ASSERT_EQ(lines.size(), 6u) << r.out;
  EXPECT_TRUE(lines[0].starts_with("1. chunk ")) << r.out;
  for (const std::size_t i : {0, 2}) EXPECT_NE(lines[i].find(": document 17 of text, tokens "), std::string::npos) << r.out;
  EXPECT_NE((lines[1] + lines[3]).find("heron"), std::string::npos) << r.out;
  const std::string id = lines[0].substr(9, lines[0].find(',') - 9), place = lines[0].substr(lines[0].find("document"));
  const Result shown = run({"retro", "inspect", texts().one, "--chunk", id});
  EXPECT_NE(shown.out.find("chunk " + id + ": " + place), std::string::npos) << output_of(shown);
  EXPECT_NE(shown.out.find("\n" + lines[1].substr(3)), std::string::npos) << output_of(shown);
}

TEST(retro, inspect_and_check_report_a_complete_project) {
  const Result shown = run({"retro", "inspect", texts().one});
  EXPECT_NE(shown.out.find("60 documents"), std::string::npos) << output_of(shown);
  EXPECT_NE(shown.out.find("of at most 16 tokens, in 54 documents of the training split of 90,10,0"), std::string::npos) << output_of(shown);
  EXPECT_NE(shown.out.find("20 neighbours of 200 candidates, order shuffled, 48 tokens"), std::string::npos) << output_of(shown);
  const auto config = nlohmann::json::parse(contents(texts().one / "config.json"));
  EXPECT_EQ(config["end"], 2) << "<|endoftext|>";
  EXPECT_EQ(config["special"], nlohmann::json({0, 1, 2}));
  const fs::path copy = texts().folder / "copy";
  fs::copy(texts().one, copy, fs::copy_options::recursive);
  const Result few = run({"retro", "query", copy, texts().deck, "--candidates", "1", "--saved", "1"});
  EXPECT_NE(few.out.find(" % of the chunks have fewer than two neighbours"), std::string::npos) << output_of(few);
  const Result checked = run({"retro", "check", copy, "--share", "0.2"}, {.ranks = 3});
  EXPECT_EQ(checked.code, 0) << output_of(checked);
  EXPECT_NE(checked.out.find("no difference in "), std::string::npos) << checked.out;
}

// A bidirectional model of the tokenizer of the project, drawn and trained for one step.
const fs::path& encoder() {
  static const fs::path model = [] {
    const fs::path out = texts().folder / "encoder";
    put_contents(texts().folder / "encoder.yaml",
                 fmt::format("data: {{prefixes: [{}], split: \"90,10,0\", order: documents, documents: separate, tokenizer: {}}}\n"
                             "train: {{seq_length: 32, steps: 1, global_batch_size: 2, objective: mlm, mlm: {{mask_token: 1}}}}\n"
                             "model: {{pattern: '*-', vocab_size: 330, hidden_size: 16, mlp: {{intermediate_size: 16}}, attention: {{num_heads: 2, "
                             "num_kv_heads: 2, head_dim: 8, causal: false}}}}\ncheckpoint: {{every: 1}}\noutput: {{folder: {}}}\n",
                             texts().prefix.string(), texts().tokenizer.string(), out.string()));
    Texts::must({"train", texts().folder / "encoder.yaml"});
    return out;
  }();
  return model;
}

TEST(retro, index_of_vectors_is_equal_on_any_ranks) {
  std::map<std::string, std::string> expected;
  for (const int ranks : {1, 3}) {
    const fs::path project = texts().folder / fmt::format("vectors{}", ranks);
    auto steps = texts().steps(project);
    for (const std::string& word : {std::string("--retriever"), "encoder:" + encoder().string()}) steps[1].push_back(word);
    for (const Words& words : steps) {
      const Result r = run(words, {.ranks = ranks});
      ASSERT_EQ(r.code, 0) << output_of(r);
    }
    const auto files = files_of(project);
    if (ranks == 1) expected = files;
    EXPECT_EQ(files.size(), expected.size());
    for (const auto& [name, bytes] : expected) EXPECT_TRUE(files.contains(name) && files.at(name) == bytes) << name;
  }
  const fs::path project = texts().folder / "vectors1";
  const Result checked = run({"retro", "check", project, "--share", "0.1"}, {.ranks = 2});
  EXPECT_EQ(checked.code, 0) << output_of(checked);
  const Result shown = run({"retro", "inspect", project});
  EXPECT_NE(shown.out.find("vectors of an encoder"), std::string::npos) << output_of(shown);
  const Result found = run({"retro", "search", project, "--text", "the red heron counts silver umbrellas", "-k", "2"});
  EXPECT_EQ(found.code, 0) << output_of(found);
  EXPECT_EQ(lines_of(found.out).size(), 4u) << found.out;
  expect_refused({"retro", "index", project}, Exit::config, "index/flat: the project has this index already");
  expect_refused({"retro", "index", texts().one, "--retriever", "encoder:" + encoder().string()}, Exit::config,
                 "index/bm25: the project has this index already");
  expect_refused({"retro", "index", project, "--retriever", "faiss"}, Exit::usage, "give bm25, or encoder:MODEL");
}

TEST(retro, approximate_index_is_equal_on_any_ranks) {
  auto steps = texts().steps("");
  for (const std::string& word : {std::string("--retriever"), "encoder:" + encoder().string(), std::string("--index"), std::string("IVF6,SQ8")})
    steps[1].push_back(word);
  const auto steps_of = [&](const fs::path& project) {
    for (Words& words : steps) words[2] = project;
    return steps;
  };
  const fs::path first = texts().folder / "codes1";
  Texts::must(steps_of(first)[0]);
  const Result made = run(steps[1]);
  if (made.err.find("has no faiss") != std::string::npos) {
    EXPECT_EQ(made.code, int(Exit::config));
    EXPECT_NE(made.err.find("install libfaiss-dev"), std::string::npos) << output_of(made);
    EXPECT_FALSE(fs::exists(first / "index")) << "refused before vectors are encoded";
    GTEST_SKIP() << "this build has no faiss (libfaiss-dev)";
  }
  EXPECT_NE(made.out.find("recall@10 with 6 probes: "), std::string::npos) << output_of(made);
  Texts::must(steps[2]);
  const auto expected = files_of(first);
  EXPECT_TRUE(expected.contains("index/faiss/trained.hdf5") && expected.contains("index/faiss/recall.json"));
  std::mt19937 random(seed_of_run());
  for (const int ranks : {2, 3, 8}) {
    const fs::path project = texts().folder / fmt::format("codes{}", ranks);
    for (const Words& words : steps_of(project)) {
      if (ranks < 8) {
        const char* const stages[] = {"begun", "filled", "written", "renamed"};
        run(words, {.ranks = ranks, .env = {{"GYR_FAULT_POINT", fmt::format("retro-{}:0:{}", stages[random() % 4], random() % 6)}}});
      }
      const Result r = run(words, {.ranks = ranks});
      ASSERT_EQ(r.code, 0) << output_of(r);
    }
    const auto files = files_of(project);
    EXPECT_EQ(files.size(), expected.size());
    for (const auto& [name, bytes] : expected) EXPECT_TRUE(files.contains(name) && files.at(name) == bytes) << ranks << " ranks: " << name;
  }
  const Result checked = run({"retro", "check", first, "--share", "0.2"}, {.ranks = 2});
  EXPECT_EQ(checked.code, 0) << output_of(checked);
  const Result shown = run({"retro", "inspect", first});
  EXPECT_NE(shown.out.find("IVF6,SQ8 with 6 probes, recall@10 "), std::string::npos) << output_of(shown);
  Words other = steps_of(first)[1];
  other.back() = "IVF5,SQ8";
  expect_refused(other, Exit::config, "was made with index = IVF6,SQ8, but this command has IVF5,SQ8");
  other.back() = "flat";
  expect_refused(other, Exit::config, "give --index IVF6,SQ8 to continue");
  other.back() = "IVF5000,Flat";
  expect_refused(other, Exit::config, "has 5000 centroids, but the database has");
  other.back() = "HNSW8";
  expect_refused(other, Exit::config, "is no inverted file");
  expect_refused({"retro", "index", texts().one, "--index", "IVF4,Flat"}, Exit::usage, "give --retriever encoder:MODEL");
}

TEST(retro, second_run_is_refused_by_the_lock) {
  const fs::path lock = texts().one / "lock";
  const int held = ::open(lock.c_str(), O_RDWR | O_CREAT, 0666);
  ASSERT_GE(held, 0);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  expect_refused({"retro", "index", texts().one}, Exit::io, "wait for it, end it, or choose another PROJECT");
  ::close(held);
  const Result after = run({"retro", "index", texts().one});
  EXPECT_EQ(after.code, 0) << output_of(after);
}

TEST(retro, wrong_arguments_are_refused_with_a_remedy) {
  const fs::path project = texts().folder / "empty", foreign = texts().folder / "foreign";
  fs::create_directory(foreign);
  put_contents(foreign / "thesis.txt", "x");
  const fs::path none = texts().folder / "none";
  expect_refused({"retro", "build-db", project}, Exit::usage, "give --data PREFIX");
  expect_refused({"retro", "build-db", foreign, "--data", texts().prefix}, Exit::usage, "is no project, but holds thesis.txt");
  EXPECT_FALSE(fs::exists(foreign / "lock"));
  expect_refused({"retro", "build-db", project, "--data", texts().prefix, "--tokenizer", texts().deck}, Exit::data, "deck.yaml");
  expect_refused({"retro", "build-db", project, "--data", none}, Exit::missing, "none.idx");
  expect_refused({"retro", "build-db", project, "--data", texts().prefix, texts().prefix}, Exit::usage, "is given twice");
  expect_refused({"retro", "build-db", texts().one, "--data", texts().prefix, "--chunk", "32", "--block", "20", "--split", "90,10,0"}, Exit::config,
                 "was made with chunk = 16, but this command has 32");
  for (const char* command : {"index", "search", "inspect", "check"}) {
    Words words{"retro", command, none};
    if (command == std::string("search")) words.insert(words.end(), {"--text", "a"});
    expect_refused(words, Exit::missing, "config.json: does not exist; `gyrfalcon retro build-db");
  }
  expect_refused({"retro", "inspect", texts().one, "--chunk", "100000"}, Exit::usage, "--chunk 100000: the database has");
  expect_refused({"retro", "query", texts().one, texts().deck, "--saved", "300"}, Exit::usage, "--saved 300 exceeds --candidates 200");
  expect_refused({"retro", "query", texts().one, texts().deck, "data.order=documents"}, Exit::config, "set data.order to shuffled or megatron");
  expect_refused({"retro", "search", texts().one, "--text", "a", "--tokenizer", texts().deck}, Exit::data, "is not the tokenizer of the project");
}

TEST(retro, incomplete_project_names_the_missing_command) {
  const fs::path project = texts().folder / "incomplete";
  const auto steps = texts().steps(project);
  Texts::must(steps[0]);
  expect_refused(steps[2], Exit::missing, "statistics.hdf5: does not exist; `gyrfalcon retro index");
  Texts::must(steps[1]);
  fs::path block;
  for (const auto& entry : fs::directory_iterator(project / "index/bm25"))
    if (entry.path().filename() != "statistics.hdf5") block = entry.path();
  fs::remove(block);
  expect_refused(steps[2], Exit::missing, block.filename().string() + ": does not exist; `gyrfalcon retro index`");
  fs::remove(project / "db/merged/train.hdf5");
  expect_refused(steps[1], Exit::missing, "train.hdf5: does not exist; `gyrfalcon retro build-db");
}

TEST(retro, moved_token_files_are_recorded_by_build_db) {
  const fs::path before = texts().folder / "before", after = texts().folder / "after", project = texts().folder / "moved";
  fs::create_directory(before);
  for (const char* end : {".bin", ".idx", ".json"}) fs::copy(texts().prefix.string() + end, before / ("text" + std::string(end)));
  auto steps = texts().steps(project);
  for (Words& words : steps)
    if (words[1] != "index") words.push_back(fmt::format("data.prefixes=[{}]", (before / "text").string()));
  for (const Words& words : steps) Texts::must(words);
  const auto files = files_of(project);
  fs::rename(before, after);
  for (const char* command : {"inspect", "check"})
    expect_refused({"retro", command, project}, Exit::missing,
                   (before / "text.idx").string() + ": does not exist, and config.json of the project names it");
  for (Words& words : steps)
    if (words[1] != "index") words.back() = fmt::format("data.prefixes=[{}]", (after / "text").string());
  Texts::must(steps[0]);
  const Result checked = run({"retro", "check", project, "--share", "0.2"});
  EXPECT_EQ(checked.code, 0) << output_of(checked) << "the queries name the earlier place";
  Texts::must(steps[2]);
  const auto now = files_of(project);
  ASSERT_EQ(now.size(), files.size());
  for (const auto& [name, bytes] : files) {
    if (name.ends_with("config.json")) EXPECT_NE(now.at(name).find((after / "text").string()), std::string::npos) << name;
    else EXPECT_TRUE(now.at(name) == bytes) << name;
  }
}

TEST(retro, check_counts_missing_blocks_of_neighbours) {
  const fs::path project = texts().folder / "unfinished";
  fs::copy(texts().one, project, fs::copy_options::recursive);
  for (const auto& [name, bytes] : files_of(project))
    if (name.starts_with("query/") && name.find("/000-") != std::string::npos) fs::remove(project / name);
  const Result checked = run({"retro", "check", project, "--share", "1"}, {.ranks = 2});
  EXPECT_EQ(checked.code, 0) << output_of(checked);
  EXPECT_NE(output_of(checked).find("block files of neighbours do not exist and were not checked; `gyrfalcon retro query`"), std::string::npos)
      << output_of(checked);
}

TEST(retro, projects_of_megatron_are_refused_by_name) {
  const fs::path project = texts().folder / "megatron";
  fs::create_directory(project);
  put_contents(project / "config.json", "{\"retro_project_dir\": \"/data\", \"retro_gpt_chunk_length\": 64}");
  for (const char* command : {"index", "inspect", "check"})
    expect_refused({"retro", command, project}, Exit::data,
                   "is a key of Megatron-LM, whose projects only `gyrfalcon train` reads, with retro.neighbors");
}

}  // namespace gyr::testing::retro_suite
