// SPDX-License-Identifier: BSD-3-Clause
#include "src/data/builder.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>

#include "kernels/base/error.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/team.hpp"
#include "regression/support/testing.hpp"
#include "src/data/class_labels.hpp"
#include "src/data/loss_mask.hpp"
#include "src/data/text_content.hpp"
#include "src/data/token_file.hpp"
#include "src/data/tokenizer_training.hpp"

namespace gyr::testing::builder_suite {

namespace fs = std::filesystem;
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
  std::size_t results() const { return std::size_t(std::distance(fs::directory_iterator(path_ / "out"), fs::directory_iterator())); }

 private:
  fs::path path_;
};

Tokenizer bytes_only() { return Tokenizer(gyr::byte_vocabulary(std::vector<std::string>{"<|endoftext|>"})); }
Tokenizer with_marks() { return Tokenizer(gyr::byte_vocabulary(std::vector<std::string>{"<|endoftext|>", "<|start|>", "<|end|>"})); }

// Builds a corpus with `ranks` threads. Returns the exit code and the message of each rank.
std::vector<std::pair<int, std::string>> build(const Tokenizer& tokenizer, BuildOptions options, int ranks, BuildReport* report = nullptr) {
  std::vector<std::pair<int, std::string>> outcome(static_cast<std::size_t>(ranks));
  as_team(ranks, [&](const BuildTeam& team) {
    try {
      const auto result = gyr::build_corpus(tokenizer, options, team);
      if (team.rank == 0 && report) *report = result;
    } catch (const Error& error) {
      outcome[std::size_t(team.rank)] = {int(error.code), error.what()};
    }
  });
  return outcome;
}

// Documents of a corpus as text. Each must end with the token `eod`, which is removed.
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
  EXPECT_EQ(folder.results(), 0u) << "no partially written file remains";
  EXPECT_EQ(outcome[0], outcome[1]) << "all ranks report the same error";
  EXPECT_EQ(outcome[0].first, int(Exit::data));
  return outcome[0].second;
}

DocumentFormat conversations(const Tokenizer& tokenizer, const std::string& text) {
  DocumentFormat format;
  format.conversation = std::make_shared<gyr::ConversationFormat>(gyr::ConversationFormat{gyr::ChatTemplate(text, tokenizer)});
  return format;
}
const std::string of_pair = "<|start|>user\n{prompt}<|end|>\n<|start|>assistant\n{response}<|end|>\n";
const std::string of_messages = "<|start|>{role}\n{content}<|end|>\n";

// Each document as text, with the tokens selected by the loss mask in [ ].
Texts marked_documents_of(const Tokenizer& tokenizer, const fs::path& prefix) {
  const gyr::TokenFile file(prefix), marks(gyr::mask_prefix(prefix));
  EXPECT_EQ(file.documents(), marks.documents());
  EXPECT_EQ(marks.type(), gyr::TokenType::u8);
  Texts texts;
  for (std::int64_t d = 0; d < file.documents(); ++d) {
    std::vector<std::int32_t> ids(std::size_t(file.length(d))), learned(ids.size());
    file.read(d, 0, ids);
    marks.read(d, 0, learned, 2);
    std::string text;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const bool before = i > 0 && learned[i - 1], now = learned[i];
      if (before != now) text += now ? "[" : "]";
      text += tokenizer.decode(std::span(&ids[i], 1));
    }
    texts.push_back(text + (learned.back() ? "]" : ""));
  }
  return texts;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string prose(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  const char* words[] = {"the ", "falcon ", "flew ", "over ", "hills\n", "and\n\n", "  far ", "away. ", "\xc3\xa9t\xc3\xa9 ", "\n\n\n"};
  std::string text;
  while (text.size() < bytes) text += words[random() % 10];
  return text;
}

}  // namespace

TEST(builder, text_is_split_into_documents_by_rule) {
  const std::string text = "\n one\ntwo\n \t\n\n three\r\n\r\nfour";
  EXPECT_EQ(built("a.txt", text, {}), (Texts{text}));
  EXPECT_EQ(built("a.txt", "\xef\xbb\xbf" + text, {}), (Texts{text}));
  EXPECT_EQ(built("a.txt", text, rule(Rule::separator)), (Texts{" one\ntwo\n", " three\r\n", "four"}));
  EXPECT_EQ(built("a.txt", text, rule(Rule::line)), (Texts{" one", "two", " \t", " three", "four"}));
  EXPECT_EQ(built("a.txt", "a\n\n\nb\n<eot>\n<eot>\r\nc <eot>\n<eot>", rule(Rule::separator, "<eot>")), (Texts{"a\n\n\nb\n", "c <eot>\n"}));
  std::string all;
  for (int b = 0; b < 128; ++b) all += char(b);
  all = std::string(std::size_t(gyr::judged_bytes), 'x') + all;  // control characters are passed on after the start of a file
  EXPECT_EQ(built("a.txt", all, {}), (Texts{all}));
}

// A page has 4 KiB or a little more, and begins at a line.
TEST(builder, pages_divide_text_at_line_starts) {
  std::string text;
  for (int line = 0; text.size() < 20000; ++line) text += "line " + std::to_string(line) + (line % 7 == 0 ? "\n\n" : "\n");
  const Texts pages = built("a.txt", text, rule(Rule::page));
  ASSERT_EQ(pages.size(), 5u);
  std::string joined;
  for (const std::string& page : pages) {
    EXPECT_LT(page.size(), 4096u + 40);
    EXPECT_GT(page.size(), &page == &pages.back() ? 1u : 4096u - 40);
    EXPECT_TRUE(page.find("line") < 2) << page.substr(0, 20);
    joined += page;
  }
  EXPECT_TRUE(joined == text);
  EXPECT_EQ(built("a.txt", "short", rule(Rule::page)), (Texts{"short"}));
}

// A page ends at the first line break after 4 KiB: before an unindented line if one begins within 1 KiB. One rank or
// several read the same pages, because only the bytes decide.
TEST(builder, pages_end_at_indented_lines_too) {
  std::mt19937 random(seed_of_run());
  for (int trial = 0; trial < 20; ++trial) {
    const unsigned unindented = trial % 3 == 0 ? 0 : 1 + random() % 200;  // average distance of unindented lines; 0: none
    std::string text;
    std::size_t longest = 0;
    while (text.size() < 100000) {
      std::string line = unindented > 0 && random() % unindented == 0 ? "head" : "   indented";
      line += std::string(random() % 120, 'x') + (random() % 10 == 0 ? "\n\n" : "\n");
      longest = std::max(longest, line.size()), text += line;
    }
    const Texts pages = built("a.txt", text, rule(Rule::page));
    std::size_t end = 0;
    for (const std::string& page : pages) {
      const std::size_t border = (end / 4096 + 1) * 4096;
      end += page.size();
      if (end == text.size()) break;
      EXPECT_EQ(text[end - 1], '\n');
      const std::size_t next = text.find_first_not_of('\n', end);  // an empty line may precede the line at which the page ends
      const bool indented = next == text.npos || text[next] == ' ';
      std::size_t head = text.find("\nhead", border - 1);
      if (head == text.npos) head = text.size();
      if (indented) {
        EXPECT_GT(head + 1, border + 1024) << "an unindented line begins at " << head + 1 << ", and the page ends at " << end;
      }
      EXPECT_LE(end, border + (indented ? longest : 1024));
    }
    EXPECT_EQ(end, text.size());
    EXPECT_GE(pages.size(), text.size() / (4096 + 1024));
  }
}

TEST(builder, text_in_another_encoding_is_refused) {
  std::mt19937 random(seed_of_run());
  for (const auto& format : {rule(Rule::automatic), rule(Rule::separator), rule(Rule::line), rule(Rule::page)})
    for (int trial = 0; trial < 10; ++trial) {
      const std::size_t before = 200 + random() % 90000;
      std::string latin;
      for (std::size_t at = 0; at < before; ++at) latin += at % 40 == 39 ? '\n' : 'x';
      const auto lines = std::count(latin.begin(), latin.end(), '\n');
      const std::string ascii = latin;
      for (std::size_t bad = 0; bad < 4 + before / 1000; ++bad) latin += "d\xe9j\xe0 vu, une phrase de texte assez longue\n";
      if (before > 40000) {
        EXPECT_FALSE(built("a.txt", ascii + "\xe9\n", format).empty()) << "a stray byte";
      }
      const std::string error = error_in("a.txt", latin, format);
      EXPECT_TRUE(has(error, "a.txt:" + std::to_string(lines + 1) + ": is not UTF-8 (byte 0xe9)")) << error;
      EXPECT_TRUE(has(error, "iconv -f latin1 -t utf-8")) << error;
    }
}

TEST(builder, refuses_content_that_is_not_text) {
  std::mt19937 random(5);
  std::string noise(5000, ' '), tar(600, '\0');
  for (char& c : noise) c = char(1 + random() % 255);
  tar.replace(257, 5, "ustar");
  const std::pair<std::string, const char*> cases[] = {{"PAR1....", "is a Parquet file"},
                                                       {"PK\x03\x04 word/document.xml", "is a zip archive"},
                                                       {tar, "is a tar archive"},
                                                       {"%PDF-1.7\n", "is a PDF file"},
                                                       {std::string("MMIDIDX\0\0\1", 10), "is a token file"},
                                                       {"version https://git-lfs.github.com/spec/v1\noid", "is a pointer of Git LFS"},
                                                       {std::string("text\0text", 9), "is binary data, not text: byte 4 is zero"},
                                                       {noise, "% of its first 5000 bytes are not UTF-8"}};
  for (const auto& [bytes, message] : cases) EXPECT_TRUE(has(error_in("a.txt", bytes), message)) << error_in("a.txt", bytes);
  EXPECT_EQ(built("a.txt", "version 2 of the text", {}), (Texts{"version 2 of the text"}));
  const std::string cut = std::string(std::size_t(gyr::judged_bytes) - 1, 'x') + "\xc3\xa9";  // a character across the end of the judged bytes
  EXPECT_EQ(built("a.txt", cut, {}), (Texts{cut}));
  EXPECT_TRUE(has(error_in("a.jsonl", "PAR1...."), "is a Parquet file"));
  EXPECT_EQ(gyr::why_not_text("text", "folder/a.bin", gyr::Judge::all_bytes), "");
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

TEST(builder, bad_json_lines_are_reported_or_skipped) {
  const std::string good = "{\"text\":\"x\"}\n";
  const std::pair<std::string, std::string> bad[] = {
      {"{\"text\": \"x\"", "not valid JSON"},
      {"{\"text\": \"\xff\"}", "not valid JSON"},
      {"{\"text\": \"\\ud800\"}", "not valid JSON"},
      {"{\"text\": \"x\"} 1", "not valid JSON"},
      {"{\"text\": \"x\"}" + std::string("\0 y", 3), "not valid JSON at character 14: a zero byte"},
      {"{\"txt\": \"x\"}", "no key 'text' (keys: txt); give the key that holds the text with --key"},
      {"{\"messages\": []}", "no key 'text' (keys: messages); chats need --template"},
      {"{\"prompt\": \"a\", \"response\": \"b\"}", "--template 'Question: {prompt}\\nAnswer: {response}\\n'"},
      {"{\"chosen\": \"a\", \"rejected\": \"b\"}", "preference pairs need --pairs"},
      {"{\"text\": 7}", "a number under 'text'"},
      {"{\"text\": [\"x\"]}", "an array under 'text'"},
      {"{\"text\": \"x\", \"text\": \"y\"}", "twice"},
      {"[\"x\"]", "not a JSON object"},
      {"\"x\"", "not a JSON object"},
      {"{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}", "nested deeper"}};
  for (const auto& [line, reason] : bad) {
    const std::string message = error_in("a.jsonl", good + good + line + "\n" + good);
    EXPECT_TRUE(has(message, "a.jsonl:3: ") && has(message, reason) && has(message, "--skip-invalid")) << message;
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
  EXPECT_TRUE(has(error_in("a.jsonl", good + "{\"text\":\"0123456789\"}\n", narrow), "a.jsonl:2: the line has 21 bytes"));
}

TEST(builder, loss_mask_selects_responses_of_conversations) {
  const auto tokenizer = with_marks();
  const auto marked = [&](const std::string& text, const std::string& lines, bool end = true) {
    const Folder folder;
    const auto eod = end ? std::optional<std::int32_t>(0) : std::nullopt;
    BuildReport report;
    const auto outcome = build(tokenizer, {{folder.in("a.jsonl", lines)}, folder.out(), conversations(tokenizer, text), eod}, 1, &report);
    EXPECT_EQ(outcome[0].first, 0) << outcome[0].second;
    EXPECT_EQ(folder.results(), 4u);
    const gyr::TokenFile marks(gyr::mask_prefix(folder.out()));
    std::vector<std::int32_t> all(std::size_t(marks.tokens()));
    marks.read_stream(0, all);
    EXPECT_EQ(report.learned, std::count(all.begin(), all.end(), 1));
    return marked_documents_of(tokenizer, folder.out());
  };
  EXPECT_EQ(marked(of_pair, "{\"prompt\":\"hi <|end|>\",\"id\":1,\"response\":\"h\\u00e9\"}\n\n{\"response\":\"\",\"prompt\":\"\"}"),
            (Texts{"<|start|>user\nhi <|end|><|end|>\n<|start|>assistant\n[h\u00e9<|end|>]\n<|endoftext|>",
                   "<|start|>user\n<|end|>\n<|start|>assistant\n[<|end|>]\n<|endoftext|>"}));
  EXPECT_EQ(marked("Q{prompt}A{response}", "{\"prompt\":\"x\",\"response\":\"y\"}"), (Texts{"QxA[y<|endoftext|>]"}))
      << "the end-of-document token closes a response that has no closing token";
  EXPECT_EQ(marked("Q{prompt}A{response}", "{\"prompt\":\"x\",\"response\":\"y\"}", false), (Texts{"QxA[y]"}));
  EXPECT_EQ(
      marked(of_messages,
             "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"assistant\",\"content\":\"a\",\"n\":1},"
             "{\"content\":\"b\",\"role\":\"user\"},{\"role\":\"assistant\",\"content\":\"c\"}]}"),
      (Texts{"<|start|>system\ns<|end|>\n<|start|>assistant\n[a<|end|>]\n<|start|>user\nb<|end|>\n<|start|>assistant\n[c<|end|>]\n<|endoftext|>"}));
}

TEST(builder, source_is_masked_from_loss_target_is_not) {
  const auto tokenizer = bytes_only();
  DocumentFormat format = rule(Rule::json_lines);
  format.source_key = "en", format.key = "de";
  for (const int ranks : {1, 3}) {
    const Folder folder;
    const auto outcome = build(
        tokenizer,
        {{folder.in("a.jsonl", "{\"en\": \"ab\", \"de\": \"c\"}\n\n{\"de\": \"f\", \"id\": 1, \"en\": \" d\"}\n")}, folder.out(), format, 0}, ranks);
    EXPECT_EQ(outcome[0].first, 0) << outcome[0].second;
    EXPECT_EQ(marked_documents_of(tokenizer, folder.out()), (Texts{"ab<|endoftext|>", "[c<|endoftext|>]", " d<|endoftext|>", "[f<|endoftext|>]"}));
  }
  const std::string good = "{\"en\": \"a\", \"de\": \"b\"}\n";
  for (const auto& [line, reason] : {std::pair{"{\"de\": \"b\"}", "has no key 'en' (keys: de)"},
                                     {"{\"en\": \"a\"}", "has no key 'de'"},
                                     {"{\"en\": \"\", \"de\": \"b\"}", "has an empty text under 'en'"}}) {
    const std::string error = error_in("a.jsonl", good + line, format);
    EXPECT_TRUE(has(error, "a.jsonl:2: the line ") && has(error, reason)) << error;
  }
}

TEST(builder, bad_conversations_are_reported_or_skipped) {
  const auto tokenizer = with_marks();
  const std::string pair = "{\"prompt\":\"x\",\"response\":\"y\"}\n";
  const std::string messages = "{\"messages\":[{\"role\":\"assistant\",\"content\":\"y\"}]}\n";
  struct Bad {
    const std::string &text, &good;
    std::string line, reason;
  };
  const Bad bad[] = {
      {of_pair, pair, "{\"prompt\":\"x\"}", "no key 'response' (keys: prompt)"},
      {of_pair, pair, "{\"prompt\":\"x\",\"response\":null}", "null under 'response', not a string"},
      {of_pair, pair, "{\"prompt\":[\"x\"],\"response\":\"y\"}", "an array under 'prompt', not a string"},
      {of_pair, pair, "{\"prompt\":\"x\",\"prompt\":\"z\",\"response\":\"y\"}", "the key 'prompt' twice"},
      {of_pair, pair, "{\"prompt\":\"x\",\"response\":\"y\"", "not valid JSON"},
      {of_pair, pair, "{\"prompt\":\"x\",\"response\":\"\\ud800\"}", "not valid JSON"},
      {of_pair, pair, "{\"prompt\":\"x\",\"response\":\"\xff\"}", "not valid JSON"},
      {of_pair, pair, "{\"prompt\":\"x\",\"response\":\"y\"} {}", "not valid JSON"},
      {of_pair, pair, "{\"prompt\":\"x\",\"response\":\"y\"}" + std::string("\0 y", 3), "a zero byte"},
      {of_pair, pair, "[1]", "is an array, not a JSON object"},
      {of_pair, pair, "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}", "nested deeper than 64"},
      {of_pair, pair, messages, "no key 'prompt' (keys: messages)"},
      {of_messages, messages, pair, "no key 'messages' (keys: prompt, response)"},
      {of_messages, messages, "{\"messages\":\"x\"}", "a string under 'messages', not a list"},
      {of_messages, messages, "{\"messages\":[\"x\"]}", "a string in message 1, not an object"},
      {of_messages, messages, "{\"messages\":[]}", "no turn of 'assistant'"},
      {of_messages, messages, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "no turn of 'assistant'"},
      {of_messages, messages, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\"}]}", "no key 'content' in message 2"},
      {of_messages, messages, "{\"messages\":[{\"role\":\"user\",\"role\":\"x\",\"content\":\"x\"}]}", "the key 'role' twice"},
      {of_messages, messages, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"text\":\"x\"}]}]}", "an array under 'content' in message 1"}};
  for (const auto& [text, good, line, reason] : bad) {
    const Folder folder;
    auto format = conversations(tokenizer, text);
    const fs::path file = folder.in("a.jsonl", good + good + line + (line.ends_with('\n') ? "" : "\n") + good);
    for (const auto& [code, message] : build(tokenizer, {{file}, folder.out(), format, 0}, 2)) {
      EXPECT_EQ(code, int(Exit::data)) << message;
      EXPECT_TRUE(has(message, "a.jsonl:3: the line ") && has(message, reason)) << message;
    }
    EXPECT_EQ(folder.results(), 0u) << "no partially written file remains";
    format.invalid = DocumentFormat::Invalid::skip;
    BuildReport report;
    build(tokenizer, {{file}, folder.out(), format, 0}, 1, &report);
    EXPECT_EQ(report.documents, 3) << line.substr(0, 100);
    EXPECT_EQ(report.skipped_lines, 1) << line.substr(0, 100);
  }
}

TEST(builder, stale_loss_mask_blocks_or_is_removed) {
  const auto tokenizer = with_marks();
  const Folder folder;
  const auto chat = conversations(tokenizer, of_pair);
  const fs::path lines = folder.in("a.jsonl", "{\"prompt\":\"x\",\"response\":\"y\"}\n"), text = folder.in("a.txt", "x");
  const auto code = [&](const fs::path& file, const DocumentFormat& format, bool overwrite) {
    return build(tokenizer, {{file}, folder.out(), format, 0, overwrite}, 2)[0].first;
  };
  EXPECT_EQ(code(lines, chat, false), 0);
  EXPECT_EQ(folder.results(), 4u);
  fs::remove(gyr::tokens_path(folder.out()));
  fs::remove(gyr::index_path(folder.out()));
  EXPECT_EQ(code(text, {}, false), int(Exit::usage)) << "a loss mask without tokens also blocks the build";
  EXPECT_EQ(code(text, {}, true), 0);
  EXPECT_EQ(folder.results(), 2u) << "a corpus of plain text has no loss mask";
  EXPECT_EQ(code(lines, chat, true), 0);
  EXPECT_EQ(folder.results(), 4u);
}

TEST(builder, loss_mask_does_not_depend_on_rank_count) {
  const auto tokenizer = with_marks();
  const Folder folder;
  std::string lines;
  for (std::size_t i = 0; lines.size() < 2'500'000; ++i)
    lines += "{\"prompt\":\"" + std::string(i % 3000, 'p') + "\",\"response\":\"" + std::string(i % 701, 'r') + "\"}\n";
  const fs::path file = folder.in("a.jsonl", lines);
  std::vector<std::string> bytes;
  BuildReport first;
  for (const int ranks : {1, 2, 3}) {
    BuildReport report;
    for (const auto& [code, message] : build(tokenizer, {{file}, folder.out(), conversations(tokenizer, of_pair), 0, true}, ranks, &report))
      ASSERT_EQ(code, 0) << message;
    std::string all;
    for (const auto& prefix : {folder.out(), gyr::mask_prefix(folder.out())})
      all += gyr::testing::contents(gyr::tokens_path(prefix)) + gyr::testing::contents(gyr::index_path(prefix));
    bytes.push_back(all);
    if (ranks == 1) first = report;
    EXPECT_EQ(report.learned, first.learned);
    EXPECT_EQ(report.tokens, first.tokens);
  }
  EXPECT_TRUE(bytes[0] == bytes[1] && bytes[0] == bytes[2]);
  const auto texts = marked_documents_of(tokenizer, folder.out());
  for (std::size_t i = 0; i < texts.size(); i += 97)
    EXPECT_EQ(texts[i], "<|start|>user\n" + std::string(i % 3000, 'p') + "<|end|>\n<|start|>assistant\n[" + std::string(i % 701, 'r') +
                            "<|end|>]\n<|endoftext|>");
}

TEST(builder, refuses_unreadable_input_and_bad_options) {
  EXPECT_TRUE(has(error_in("a.txt", "\x1f\x8b\x08 zipped"), "is damaged at byte"));
  EXPECT_TRUE(has(error_in("a.txt", std::string("\xff\xfe"
                                                "a\0",
                                                4)),
                  "UTF-16"));
  EXPECT_TRUE(has(error_in("a.txt", ""), "a.txt holds no document") && has(error_in("a.txt", ""), "--documents"));
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
  EXPECT_EQ(code({{file}, folder.out(), {}, 0}), int(Exit::usage)) << "the output exists already";
  EXPECT_EQ(code({{file}, folder.out(), {}, 0, true}), 0);
  EXPECT_EQ(folder.results(), 2u);
}

TEST(builder, corpus_bytes_do_not_depend_on_rank_count) {
  const Folder folder;
  const std::string big = prose(2'400'000, 1), other = prose(1'300'000, 2);
  std::string lines;
  while (lines.size() < 1'200'000) lines += "{\"text\":\"" + std::string(1 + lines.size() % 5000, 'a') + " b\"}\n";
  gyr::TrainerOptions training;
  training.vocab_size = 400;
  const auto tokenizer = gyr::train_tokenizer(std::vector{folder.in("t.txt", prose(50000, 3))}, training);
  const std::vector<fs::path> inputs = {folder.in("big.txt", big),   folder.in("tiny.txt", "x"),
                                        folder.in("empty.txt", ""),  folder.in("other.txt", other),
                                        folder.in("l.jsonl", lines), folder.in("line.txt", std::string(1'200'000, 'z') + "\n\nend")};
  for (const auto& format : {rule(Rule::automatic), rule(Rule::separator), rule(Rule::line), rule(Rule::page), rule(Rule::separator, "hills")}) {
    std::string bin, idx;
    for (const int ranks : {1, 2, 3, 5}) {
      BuildReport report;
      for (const auto& [code, message] : build(tokenizer, {inputs, folder.out(), format, 2, true}, ranks, &report)) ASSERT_EQ(code, 0) << message;
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

// WordPiece tokens between [CLS] and [SEP], for documents of one or several blocks, on any number of ranks.
TEST(builder, special_tokens_enclose_every_document) {
  const auto tokenizer = Tokenizer::load(fs::path(GYR_SOURCE_DIR) / "regression/golden/tokenizers/bert_uncased.json");
  std::string large;
  for (int line = 0; line < 60000; ++line) large += "A line of the Document, number " + std::to_string(line) + "\n";
  for (const int ranks : {1, 3}) {
    const Folder folder;
    const Texts texts{"Hello world's 123", large, "last"};
    std::vector<fs::path> files;
    for (std::size_t i = 0; i < texts.size(); ++i) files.push_back(folder.in(std::to_string(i), texts[i]));
    BuildOptions options{files, folder.out(), rule(Rule::file), {}};
    options.complete = true;
    EXPECT_EQ(build(tokenizer, options, ranks)[0].second, "");
    const gyr::TokenFile file(folder.out());
    ASSERT_EQ(file.documents(), std::int64_t(texts.size()));
    for (std::int64_t d = 0; d < file.documents(); ++d) {
      std::vector<std::int32_t> ids(std::size_t(file.length(d)));
      file.read(d, 0, ids);
      EXPECT_TRUE(ids == tokenizer.encode(texts[std::size_t(d)], Tokenizer::Specials::complete))
          << d << " is the document; its number of tokens is " << ids.size();
    }
  }
}

// Blocks are an implementation detail: the token ids equal those of the full text encoded at once.
TEST(builder, tokens_do_not_depend_on_block_boundaries) {
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

TEST(builder, full_disk_stops_all_ranks_without_leftovers) {
  const Folder folder;
  const fs::path file = folder.in("a.txt", prose(4'000'000, 5));
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t limit : {1'500'000, 6'000'000}) {  // too small for a part, then too small for the whole corpus
    const rlimit small{limit, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    const auto outcome = build(bytes_only(), {{file}, folder.out(), {}, 0}, 2);
    ::setrlimit(RLIMIT_FSIZE, &before);
    for (const auto& [code, message] : outcome) EXPECT_EQ(code, int(Exit::io)) << message;
    EXPECT_EQ(folder.results(), 0u);
  }
  std::signal(SIGXFSZ, handler);
}

// Labels are stored as class + 1; 0 is no label. With word labels, the first token of each word has the label. With a
// document label, the first token of the document has it.
TEST(builder, class_labels_are_aligned_with_tokens) {
  const Folder folder;
  for (const bool of_words : {false, true}) {
    BuildOptions options;
    const char* const lines = of_words ? R"({"tokens": ["ab", "c", "def"], "tags": ["B", null, 0]})"
                                         "\n"
                                         R"({"text": "x  yz", "tags": [1, "A"]})"
                                         "\n"
                                       : R"({"text": "ab c", "label": "B"})"
                                         "\n"
                                         R"({"label": 0, "text": "x"})"
                                         "\n";
    options.inputs = {folder.in("labelled.jsonl", lines)};
    options.prefix = folder.out(), options.eod = 0, options.overwrite = true;
    options.format.labelled = std::make_shared<gyr::LabelledFormat>(gyr::LabelledFormat{{"A", "B"}, of_words});
    const BuildReport report = gyr::build_corpus(bytes_only(), options);
    EXPECT_EQ(report.documents, 2);
    EXPECT_EQ(report.labelled, of_words ? 4 : 2);
    const gyr::TokenFile labels(gyr::labels_prefix(folder.out()));
    const auto of = [&](std::int64_t sequence) {
      std::vector<std::int32_t> values(std::size_t(labels.length(sequence)));
      labels.read(sequence, 0, values);
      return values;
    };
    using TokenIds = std::vector<std::int32_t>;  // tokens of "ab c def" and "x yz", or of "ab c" and "x", each with an end-of-document token
    EXPECT_EQ(of(0), of_words ? (TokenIds{2, 0, 0, 0, 1, 0, 0, 0, 0}) : (TokenIds{2, 0, 0, 0, 0}));
    EXPECT_EQ(of(1), of_words ? (TokenIds{2, 1, 0, 0, 0}) : (TokenIds{1, 0}));
  }
}

}  // namespace gyr::testing::builder_suite
