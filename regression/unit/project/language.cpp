// SPDX-License-Identifier: BSD-3-Clause
// Law of language: comments, messages, help texts, pages, test names and commit titles use the field's terms and full sentences.
// Each rule has a ceiling of violations. A ceiling may only fall: a count below it fails as well and states the new ceiling.
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "regression/support/testing.hpp"

namespace gyr::testing::language_suite {

namespace {

namespace fs = std::filesystem;

enum class Kind { comment, text };

// One piece of prose: a block of comment lines, a trailing comment, or a string literal that contains a space.
struct Prose {
  std::string file;  // path from the project's root
  int line;
  Kind kind;
  std::string text;
};

std::string content_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string trimmed(std::string text) {
  const auto first = text.find_first_not_of(" \t/#"), last = text.find_last_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// End of the quoted literal that begins at `at`; backslashes escape the next character.
std::size_t end_of_quoted(const std::string& code, std::size_t at) {
  const char quote = code[at];
  for (++at; at < code.size() && code[at] != quote && code[at] != '\n'; ++at) at += code[at] == '\\';
  return std::min(at + 1, code.size());
}

// Adds the comment `text` of `line`, which continues the previous one if both fill consecutive lines.
void add_comment(std::vector<Prose>& all, const std::string& file, int line, bool full_line, bool continues, const std::string& text) {
  if (text.find("SPDX") != std::string::npos) return;
  if (full_line && continues && !all.empty() && all.back().kind == Kind::comment) all.back().text += " " + trimmed(text);
  else all.push_back({file, line, Kind::comment, trimmed(text)});
}

bool is_digit_separator(const std::string& code, std::size_t at) { return at > 0 && std::isalnum(static_cast<unsigned char>(code[at - 1])); }

// Prose of C++ source. Raw string literals are data (scripts, pages) and are left out.
std::vector<Prose> prose_of(const std::string& file, const std::string& code) {
  std::vector<Prose> all;
  int line = 1, last_full_line = -1;
  bool blank = true;  // nothing but spaces on this line so far
  for (std::size_t at = 0; at < code.size();) {
    if (code.compare(at, 2, "//") == 0) {
      const std::size_t end = std::min(code.find('\n', at), code.size());
      add_comment(all, file, line, blank, last_full_line == line - 1, code.substr(at, end - at));
      if (blank) last_full_line = line;
      at = end;
    } else if (code.compare(at, 2, "R\"") == 0) {
      const std::size_t open = code.find('(', at);
      const std::string close = ")" + code.substr(at + 2, open - at - 2) + "\"";
      const std::size_t end = std::min(code.find(close, open) + close.size(), code.size());
      line += int(std::count(code.begin() + std::ptrdiff_t(at), code.begin() + std::ptrdiff_t(end), '\n'));
      at = end, blank = false;
    } else if (code[at] == '"' || (code[at] == '\'' && !is_digit_separator(code, at))) {
      const std::size_t end = end_of_quoted(code, at);
      const std::string text = code.substr(at + 1, end - at - 2);
      if (code[at] == '"' && text.find(' ') != std::string::npos) all.push_back({file, line, Kind::text, text});
      at = end, blank = false;
    } else {
      if (code[at] == '\n') ++line, blank = true;
      else if (code[at] != ' ') blank = false;
      ++at;
    }
  }
  return all;
}

// Comments of a script, deck or CMake file: lines that begin with '#'.
std::vector<Prose> prose_of_script(const std::string& file, const std::string& code) {
  std::vector<Prose> all;
  std::istringstream in(code);
  int number = 0, last = -1;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const auto first = line.find_first_not_of(' ');
    if (first == std::string::npos || line[first] != '#' || line.compare(first, 2, "#!") == 0) continue;
    add_comment(all, file, number, true, last == number - 1, line.substr(first));
    last = number;
  }
  return all;
}

bool has_extension(const fs::path& file, std::initializer_list<const char*> extensions) {
  return std::find(extensions.begin(), extensions.end(), file.extension()) != extensions.end();
}

// All prose below `folders`: of the product, comments and texts; of the suite, comments only, since its texts are data.
std::vector<Prose> prose_below(std::initializer_list<const char*> folders) {
  std::vector<Prose> all;
  for (const std::string folder : folders)
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(GYR_SOURCE_DIR) / folder)) {
      if (!entry.is_regular_file() || entry.path().filename() == "language.cpp") continue;
      const std::string name = fs::relative(entry.path(), GYR_SOURCE_DIR);
      std::vector<Prose> found;
      if (has_extension(entry.path(), {".hpp", ".cpp", ".cu", ".in"})) found = prose_of(name, content_of(entry.path()));
      if (has_extension(entry.path(), {".sh", ".awk", ".cmake", ".yaml"}) || entry.path().filename() == "CMakeLists.txt")
        found = prose_of_script(name, content_of(entry.path()));
      for (Prose& p : found)
        if (p.kind == Kind::comment || folder != "regression") all.push_back(std::move(p));
    }
  return all;
}

const std::vector<Prose>& all_prose() {
  static const std::vector<Prose> all = prose_below({"kernels", "modules", "src", "regression", "jobscripts", "input"});
  return all;
}

// Lines of the project's pages, outside of code blocks.
std::vector<Prose> page_lines() {
  std::vector<Prose> lines;
  for (const auto& entry : fs::recursive_directory_iterator(GYR_SOURCE_DIR)) {
    const std::string name = fs::relative(entry.path(), GYR_SOURCE_DIR);
    if (entry.path().extension() != ".md" || name.starts_with("build") || name.starts_with("out")) continue;
    std::ifstream in(entry.path());
    bool code = false;
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      if (line.starts_with("```")) code = !code;
      else if (!code && !line.starts_with("    ")) lines.push_back({name, number, Kind::text, line});
    }
  }
  return lines;
}

struct Rule {
  const char* name;     // printed for each violation
  const char* pattern;  // ECMAScript, of the violation
  int ceiling;
};

// Counts and prints the violations of `rule`, and compares their number with its ceiling.
void expect_within(const Rule& rule, const std::vector<Prose>& all, std::regex::flag_type flags = std::regex::ECMAScript) {
  const std::regex pattern(rule.pattern, flags | std::regex::optimize);
  int count = 0;
  std::string violations;
  for (const Prose& p : all) {
    if (!std::regex_search(p.text, pattern)) continue;
    ++count;
    violations += p.file + ":" + std::to_string(p.line) + ": " + rule.name + ": " + p.text.substr(0, 100) + "\n";
  }
  EXPECT_LE(count, rule.ceiling) << "more violations than the ceiling of this rule:\n" << violations;
  EXPECT_GE(count, rule.ceiling) << "fewer violations of '" << rule.name << "': lower its ceiling to " << count;
}

TEST(language, lexer_separates_comments_and_texts) {
  const auto all = prose_of("f", "int a = 1'000;  // first\n// second\n// third\nf(\"two words\", '\"', R\"(no text)\");\n");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].text, "first");
  EXPECT_EQ(all[1].text, "second third");
  EXPECT_EQ(all[1].line, 2);
  EXPECT_EQ(all[2].text, "two words");
}

TEST(language, prose_begins_with_its_subject) {
  EXPECT_GT(all_prose().size(), 5000u);
  expect_within({"begins with What, Who, Where, Of, That of or Whether", "^(What|Who|Whose|Where|Of|That of|Those of|Whether)\\b", 0}, all_prose());
  std::vector<Prose> texts;
  std::copy_if(all_prose().begin(), all_prose().end(), std::back_inserter(texts), [](const Prose& p) { return p.kind == Kind::text; });
  expect_within({"text begins with what, who, where, of or whether", "^(what|who|whose|where|of what|that of|those of|whether) ", 1},
                texts);  // a name that seeds a random stream
}

TEST(language, verbs_describe_what_programs_do) {
  expect_within({"tell, tells or told", "\\b(tell|tells|told)\\b", 0}, all_prose(), std::regex::icase);
  expect_within({"tell, tells or told", "\\b(tell|tells|told)\\b", 0}, page_lines(), std::regex::icase);
}

TEST(language, quantities_have_names) {
  expect_within({"so many, so often or so much", "\\bso (many|often|much)\\b", 0}, all_prose(), std::regex::icase);
  expect_within({"so many, so often or so much", "\\bso (many|often|much)\\b", 0}, page_lines(), std::regex::icase);
}

// Left-hand terms of the glossary. Ordinary words that are right in other contexts ("share a GPU", "a whole number") have a ceiling.
TEST(language, glossary_terms_are_replaced) {
  const Rule rules[] = {
      {"anew: again", "(^|[^-])\\banew\\b", 0},
      {"dealt: distributed", "\\bdealt\\b", 0},
      {"dearest: slowest", "\\bdearest\\b", 0},
      {"fullest: maximum load", "\\bfullest\\b", 0},
      {"keys go round: ring exchange of K/V", "\\bkeys (go|come|went) round\\b", 0},
      {"heads against tokens: all-to-all between heads and tokens", "\\bheads against tokens\\b", 0},
      {"ranks that share sequences: context-parallel ranks", "\\branks that share sequences\\b", 0},
      {"ranks that help each other: load-balanced context parallelism", "\\bhelp each other\\b", 0},
      {"ranks of the tensor axis: tensor-parallel ranks", "\\branks of the (tensor|data|context|pipeline) axis\\b", 0},
      {"made again: recomputed", "\\bmade again\\b", 0},
      {"lies on the host meanwhile: offloaded", "\\blies? on the host\\b", 0},
      {"further ahead: multi-token prediction", "\\b(further|read|look)s? ahead (modules?|tokens?)\\b|tokens further ahead", 0},
      {"learned token: target token", "\\blearned tokens?\\b", 0},
      {"halves in their order: sentence-order prediction", "\\bhalves (stand )?in their order\\b", 0},
      {"cargo, conveyor, beacon, keeper, agenda: named by their purpose", "\\b(cargo|conveyor|beacon|keeper|agenda)s?\\b", 0},
      {"matrix product: GEMM or matmul", "\\bmatrix products?\\b", 0},
      {"bring: load, copy or send", "\\b(bring|brings|brought)\\b", 0},
      {"soften: softmax", "\\bsoftens?\\b", 0},
      {"nobody, somebody, whoever: name the rank, thread or caller", "\\b(nobody|somebody|whoever)\\b", 0},
      {"one behind the other: one after the other", "\\bbehind the other\\b", 0},
  };
  for (const Rule& rule : rules) expect_within(rule, all_prose(), std::regex::icase);
}

// Lower case, with spaces for hyphens.
std::string plain(std::string text) {
  for (char& c : text) c = c == '-' ? ' ' : char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

TEST(language, terms_that_readers_search_for_occur) {
  const char* terms[] = {"tensor parallel",
                         "pipeline parallel",
                         "data parallel",
                         "context parallel",
                         "expert parallel",
                         "sequence parallel",
                         "KV cache",
                         "gradient accumulation",
                         "activation checkpointing",
                         "mixed precision",
                         "GEMM",
                         "wgmma",
                         "producer",
                         "consumer",
                         "ring attention",
                         "all-gather",
                         "reduce-scatter",
                         "all-reduce",
                         "offload",
                         "straggler",
                         "occupancy",
                         "split-K",
                         "roofline",
                         "throughput"};
  std::string all;
  for (const Prose& p : all_prose()) all += p.text + "\n";
  for (const Prose& p : page_lines()) all += p.text + "\n";
  all = plain(all);
  for (const std::string term : terms) {
    int found = 0;
    for (auto at = all.find(plain(term)); at != std::string::npos; at = all.find(plain(term), at + 1)) ++found;
    EXPECT_GE(found, 3) << "the term '" << term << "' is missing from comments, texts and pages";
  }
}

TEST(language, test_names_have_at_most_eight_words) {
  static const std::regex test(R"re(^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST)\((\w+), (\w+)\))re");
  int seen = 0, long_names = 0;
  std::string violations;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(GYR_SOURCE_DIR) / "regression")) {
    if (!has_extension(entry.path(), {".cpp"})) continue;
    std::ifstream in(entry.path());
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      std::smatch match;
      if (!std::regex_search(line, match, test)) continue;
      ++seen;
      const std::string name = match[2];
      if (std::count(name.begin(), name.end(), '_') < 8) continue;
      ++long_names;
      violations += entry.path().string() + ":" + std::to_string(number) + ": " + name + "\n";
    }
  }
  EXPECT_GT(seen, 1000);
  EXPECT_EQ(long_names, 0) << violations;
}

TEST(language, pages_are_short) {
  std::map<std::string, int> lines_of;
  for (const auto& entry : fs::recursive_directory_iterator(GYR_SOURCE_DIR)) {
    const std::string name = fs::relative(entry.path(), GYR_SOURCE_DIR);
    if (entry.path().extension() != ".md" || name.starts_with("build") || name.starts_with("out")) continue;
    std::ifstream in(entry.path());
    int number = 0, paragraph = 0;
    bool code = false;
    for (std::string line; std::getline(in, line);) {
      ++number;
      std::size_t columns = 0;
      for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // bytes that begin a UTF-8 character
      const bool table = line.starts_with("|"), link = line.find("](") != std::string::npos && line.starts_with("!");
      EXPECT_TRUE(columns <= 120 || link) << name << ":" << number << ": " << columns << " columns, 120 allowed";
      if (line.starts_with("```")) code = !code;
      paragraph = line.empty() || code || table || line.starts_with("    ") || line.starts_with("```") || line.starts_with("#") ? 0 : paragraph + 1;
      if (line.starts_with("- ") || line.starts_with("* ") || std::regex_search(line, std::regex("^[0-9]+\\. "))) paragraph = 1;
      EXPECT_LE(paragraph, 6) << name << ":" << number << ": a paragraph has more than six lines";
    }
    lines_of[name] = number;
  }
  for (const auto& [name, lines] : lines_of) EXPECT_LE(lines, name == "README.md" ? 150 : 250) << name;
  for (const char* folder :
       {"", "src/", "src/planner/", "src/huggingface/", "modules/", "kernels/", "kernels/cuda/", "jobscripts/", "input/", "regression/"})
    EXPECT_TRUE(lines_of.contains(std::string(folder) + "README.md")) << folder << " has no page";
}

// Output of a command and its exit code.
std::pair<std::string, int> output_of(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return {out, -1};
  char buffer[4096];
  for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  const int status = pclose(pipe);
  return {out, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

// The rule holds for the commits after this one.
constexpr const char* first_ruled_commit = "382cf517";

TEST(language, commit_titles_state_area_and_change) {
  const std::string git = "git -C '" GYR_SOURCE_DIR "' ";
  const auto [titles, code] = output_of(git + "log --format=%s " + first_ruled_commit + "..HEAD 2>/dev/null");
  if (code != 0) GTEST_SKIP() << "no history of the project here";
  static const std::regex form("^[a-z][a-z0-9_ ./,-]*: [^ ].*"), path("(^|[ (])/[a-z]+/");
  std::istringstream in(titles);
  for (std::string title; std::getline(in, title);) {
    EXPECT_LE(title.size(), 72u) << title;
    EXPECT_TRUE(std::regex_search(title, form)) << "not of the form 'area: change': " << title;
    EXPECT_FALSE(std::regex_search(title, path)) << "contains a path: " << title;
  }
}

}  // namespace

}  // namespace gyr::testing::language_suite
