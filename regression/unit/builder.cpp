// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/builder.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <barrier>
#include <csignal>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <thread>

#include "kernels/error.hpp"
#include "regression/folder.hpp"
#include "regression/testing.hpp"
#include "src/data/token_file.hpp"
#include "src/tokenizer/trainer.hpp"

namespace fs = std::filesystem;
using gyr::BuildOptions;
using gyr::BuildReport;
using gyr::DocumentFormat;
using gyr::Error;
using gyr::Exit;
using gyr::Team;
using gyr::Tokenizer;
using Texts = std::vector<std::string>;

namespace {

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("gyr_builder_" + std::to_string(::getpid()))) {
    fs::create_directories(path_ / "in");
    fs::create_directories(path_ / "out");
  }
  ~Folder() { fs::remove_all(path_); }
  fs::path in(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / "in" / name, std::ios::binary) << bytes;
    return path_ / "in" / name;
  }
  fs::path out() const { return path_ / "out" / "corpus"; }
  std::size_t results() const {
    return std::size_t(std::distance(fs::directory_iterator(path_ / "out"), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};


Tokenizer bytes_only() { return Tokenizer(gyr::byte_vocabulary(std::vector<std::string>{"<|endoftext|>"})); }

// Runs action(team) on `size` threads that can gather numbers from each other.
void as_team(int size, const std::function<void(const Team&)>& action) {
  std::vector<std::int64_t> shared(static_cast<std::size_t>(size));
  std::barrier<> meet(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      action({rank, size, [&, rank](std::int64_t mine) {
                shared[std::size_t(rank)] = mine;
                meet.arrive_and_wait();
                auto all = shared;
                meet.arrive_and_wait();
                return all;
              }});
    });
  for (auto& thread : threads) thread.join();
}

// Builds with `ranks` threads; every rank's exit code and message.
std::vector<std::pair<int, std::string>> build(const Tokenizer& tokenizer, BuildOptions options, int ranks,
                                               BuildReport* report = nullptr) {
  std::vector<std::pair<int, std::string>> outcome(static_cast<std::size_t>(ranks));
  as_team(ranks, [&](const Team& team) {
    try {
      const auto result = gyr::build_corpus(tokenizer, options, team);
      if (team.rank == 0 && report) *report = result;
    } catch (const Error& error) {
      outcome[std::size_t(team.rank)] = {int(error.code), error.what()};
    }
  });
  return outcome;
}

// The documents of a corpus as text, each checked to end with `eod`, which is removed.
Texts documents_of(const Tokenizer& tokenizer, const fs::path& prefix, std::int32_t eod = 0) {
  const gyr::TokenFile file(prefix);
  Texts texts;
  for (std::int64_t d = 0; d < file.documents(); ++d) {
    std::vector<std::int32_t> ids(std::size_t(file.length(d)));
    file.read(d, 0, ids);
    EXPECT_EQ(ids.back(), eod);
    ids.pop_back();
    EXPECT_EQ(std::count(ids.begin(), ids.end(), eod), 0);
    texts.push_back(tokenizer.decode(ids));
  }
  return texts;
}

Texts built(const std::string& name, const std::string& bytes, const DocumentFormat& format) {
  const Folder folder;
  const auto tokenizer = bytes_only();
  const BuildOptions options{{folder.in(name, bytes)}, folder.out(), format, 0};
  const auto outcome = build(tokenizer, options, 1);
  EXPECT_EQ(outcome[0].first, 0) << outcome[0].second;
  return documents_of(tokenizer, folder.out());
}

DocumentFormat rule(DocumentFormat::Rule rule, std::string separator = "") {
  DocumentFormat format;
  format.rule = rule;
  format.separator = std::move(separator);
  return format;
}
using Rule = DocumentFormat::Rule;

std::string error_in(const std::string& name, const std::string& bytes, const DocumentFormat& format = {}) {
  const Folder folder;
  const auto outcome = build(bytes_only(), {{folder.in(name, bytes)}, folder.out(), format, 0}, 2);
  EXPECT_EQ(folder.results(), 0u) << "nothing half-written is left";
  EXPECT_EQ(outcome[0].first, outcome[1].first) << "all ranks agree on the exit code";
  EXPECT_EQ(outcome[0].first, int(Exit::data));
  return outcome[0].second + " | " + outcome[1].second;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string prose(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  const char* words[] = {
      "the ", "falcon ", "flew ", "over ", "hills\n", "and\n\n", "  far ", "away. ", "\xc3\xa9t\xc3\xa9 ", "\n\n\n"};
  std::string text;
  while (text.size() < bytes) text += words[random() % 10];
  return text;
}

}  // namespace

TEST(builder, documents_end_where_the_rule_says) {
  const std::string text = "\n one\ntwo\n \t\n\n three\r\n\r\nfour";
  EXPECT_EQ(built("a.txt", text, {}), (Texts{text}));
  EXPECT_EQ(built("a.txt", "\xef\xbb\xbf" + text, {}), (Texts{text}));
  EXPECT_EQ(built("a.txt", text, rule(Rule::separator)), (Texts{" one\ntwo\n", " three\r\n", "four"}));
  EXPECT_EQ(built("a.txt", text, rule(Rule::line)), (Texts{" one", "two", " \t", " three", "four"}));
  EXPECT_EQ(built("a.txt", "a\n\n\nb\n<eot>\n<eot>\r\nc <eot>\n<eot>", rule(Rule::separator, "<eot>")),
            (Texts{"a\n\n\nb\n", "c <eot>\n"}));
  std::string all;
  for (int b = 0; b < 256; ++b) all += char(b);
  EXPECT_EQ(built("a.txt", all, {}), (Texts{all}));
}

TEST(builder, reads_json_lines) {
  const std::string lines =
      "\xef\xbb\xbf{\"id\": 1, \"text\": \"one \\u00e9\\n\"}\r\n\n  "
      "\t\n{\"text\":\"\"}\n{\"a\":{\"text\":3},\"text\":\"two\"}";
  EXPECT_EQ(built("a.jsonl", lines, {}), (Texts{"one \u00e9\n", "two"}));
  DocumentFormat body;
  body.key = "body";
  EXPECT_EQ(built("a.jsonl", "{\"text\": 5, \"body\": \"x\"}\n", body), (Texts{"x"}));
  EXPECT_EQ(built("a.dat", "{\"text\": \"x\"}\n", rule(Rule::json_lines)), (Texts{"x"}));
}

TEST(builder, bad_lines_stop_with_file_and_line_or_are_counted) {
  const std::string good = "{\"text\":\"x\"}\n";
  const std::pair<std::string, std::string> bad[] = {
      {"{\"text\": \"x\"", "not valid JSON"},
      {"{\"text\": \"\xff\"}", "not valid JSON"},
      {"{\"text\": \"\\ud800\"}", "not valid JSON"},
      {"{\"text\": \"x\"} 1", "not valid JSON"},
      {"{\"txt\": \"x\"}", "no key 'text' (keys: txt)"},
      {"{\"text\": 7}", "a number under 'text'"},
      {"{\"text\": [\"x\"]}", "an array under 'text'"},
      {"{\"text\": \"x\", \"text\": \"y\"}", "twice"},
      {"[\"x\"]", "not a JSON object"},
      {"\"x\"", "not a JSON object"},
      {"{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}", "nested deeper"}};
  for (const auto& [line, reason] : bad) {
    const std::string message = error_in("a.jsonl", good + good + line + "\n" + good);
    EXPECT_TRUE(has(message, "a.jsonl:3: ") && has(message, reason)) << message;
    DocumentFormat skip;
    skip.invalid = DocumentFormat::Invalid::skip;
    const Folder folder;
    BuildReport report;
    build(bytes_only(), {{folder.in("a.jsonl", good + line + "\n" + good)}, folder.out(), skip, 0}, 1, &report);
    EXPECT_EQ(report.documents, 2) << line;
    EXPECT_EQ(report.skipped_lines, 1) << line;
  }
  DocumentFormat narrow;
  narrow.max_line_bytes = 20;
  EXPECT_TRUE(
      has(error_in("a.jsonl", good + "{\"text\":\"0123456789\"}\n", narrow), "a.jsonl:2: the line has 21 bytes"));
}

TEST(builder, refuses_what_is_no_text) {
  EXPECT_TRUE(has(error_in("a.txt", "\x1f\x8b\x08 zipped"), "decompress"));
  EXPECT_TRUE(has(error_in("a.txt", std::string("\xff\xfe"
                                                "a\0",
                                                4)),
                  "UTF-16"));
  EXPECT_TRUE(has(error_in("a.txt", ""), "no document"));
  EXPECT_TRUE(has(error_in("a.txt", "\n\n \n", rule(Rule::separator)), "no document"));
  EXPECT_THROW(gyr::parse_document_rule("lines"), Error);

  const Folder folder;
  const auto code = [&](const BuildOptions& options) { return build(bytes_only(), options, 3)[2].first; };
  const fs::path file = folder.in("a.txt", "x");
  EXPECT_EQ(code({{file, file.parent_path() / "none"}, folder.out(), {}, 0}), int(Exit::missing));
  EXPECT_EQ(code({{file.parent_path()}, folder.out(), {}, 0}), int(Exit::data));
  EXPECT_EQ(code({{}, folder.out(), {}, 0}), int(Exit::config));
  EXPECT_EQ(code({{file}, folder.out(), {}, 257}), int(Exit::config));
  EXPECT_EQ(code({{file}, folder.out() / "none" / "x", {}, 0}), int(Exit::missing));
  EXPECT_EQ(folder.results(), 0u);
  EXPECT_EQ(code({{file}, folder.out(), {}, 0}), 0);
  EXPECT_EQ(code({{file}, folder.out(), {}, 0}), int(Exit::config)) << "it exists";
  EXPECT_EQ(code({{file}, folder.out(), {}, 0, true}), 0);
  EXPECT_EQ(folder.results(), 2u);
}

TEST(builder, bytes_do_not_depend_on_the_ranks) {
  const Folder folder;
  const std::string big = prose(2'400'000, 1), other = prose(1'300'000, 2);
  std::string lines;
  while (lines.size() < 1'200'000) lines += "{\"text\":\"" + std::string(1 + lines.size() % 5000, 'a') + " b\"}\n";
  gyr::TrainerOptions training;
  training.vocab_size = 400;
  const auto tokenizer = gyr::train_tokenizer(std::vector{folder.in("t.txt", prose(50000, 3))}, training);
  const std::vector<fs::path> inputs = {
      folder.in("big.txt", big),   folder.in("tiny.txt", "x"),
      folder.in("empty.txt", ""),  folder.in("other.txt", other),
      folder.in("l.jsonl", lines), folder.in("line.txt", std::string(1'200'000, 'z') + "\n\nend")};
  for (const auto& format :
       {rule(Rule::automatic), rule(Rule::separator), rule(Rule::line), rule(Rule::separator, "hills")}) {
    std::string bin, idx;
    for (const int ranks : {1, 2, 3, 5}) {
      BuildReport report;
      for (const auto& [code, message] : build(tokenizer, {inputs, folder.out(), format, 2, true}, ranks, &report))
        ASSERT_EQ(code, 0) << message;
      EXPECT_EQ(folder.results(), 2u);
      if (ranks == 1) {
        bin = gyr::testing::contents(gyr::tokens_path(folder.out()));
        idx = gyr::testing::contents(gyr::index_path(folder.out()));
      }
      EXPECT_TRUE(bin == gyr::testing::contents(gyr::tokens_path(folder.out()))) << ranks;
      EXPECT_TRUE(idx == gyr::testing::contents(gyr::index_path(folder.out()))) << ranks;
      const gyr::TokenFile file(folder.out());
      EXPECT_EQ(report.tokens, file.tokens());
      EXPECT_EQ(report.documents, file.documents());
    }
    if (format.rule == Rule::automatic) {
      const auto texts = documents_of(tokenizer, folder.out(), 2);
      EXPECT_TRUE(texts[0] == big);
      EXPECT_EQ(texts[1], "x");
      EXPECT_TRUE(texts[2] == other);
      EXPECT_EQ(texts.back().size(), 1'200'005u);
    }
  }
}

// Blocks are an implementation detail: the ids are those of the whole text at once.
TEST(builder, blocks_do_not_show_in_the_tokens) {
  const Folder folder;
  const std::string text = prose(3'000'000, 4);
  gyr::TrainerOptions training;
  training.vocab_size = 400;
  const fs::path file = folder.in("a.txt", text);
  const auto tokenizer = gyr::train_tokenizer(std::vector{file}, training);
  build(tokenizer, {{file}, folder.out(), {}, {}}, 2);
  const gyr::TokenFile corpus(folder.out());
  ASSERT_EQ(corpus.documents(), 1);
  std::vector<std::int32_t> ids(std::size_t(corpus.tokens()));
  corpus.read(0, 0, ids);
  EXPECT_TRUE(ids == tokenizer.encode(text));
}

TEST(builder, a_full_disk_stops_all_ranks_and_leaves_nothing) {
  const Folder folder;
  const fs::path file = folder.in("a.txt", prose(4'000'000, 5));
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t limit : {1'500'000, 6'000'000}) {  // too small for a part; for the whole
    const rlimit small{limit, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    const auto outcome = build(bytes_only(), {{file}, folder.out(), {}, 0}, 2);
    ::setrlimit(RLIMIT_FSIZE, &before);
    for (const auto& [code, message] : outcome) EXPECT_EQ(code, int(Exit::io)) << message;
    EXPECT_EQ(folder.results(), 0u);
  }
  std::signal(SIGXFSZ, handler);
}
