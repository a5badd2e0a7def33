// SPDX-License-Identifier: BSD-3-Clause
// The list of mutants (deliberate mistakes, regression/mutants/list.txt) matches the sources, so that `make mutants`
// measures what it claims. Malformed lists are refused by name.
#include "regression/mutants/mutants.hpp"

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

#include "regression/support/testing.hpp"

namespace gyr::testing::mutants_suite {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

const fs::path root = GYR_SOURCE_DIR;

std::string error_of(const std::function<void()>& what) {
  try {
    what();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(mutants, list_matches_the_sources) {
  const auto mutants = read_mutants(root / "regression/mutants/list.txt");
  EXPECT_GE(mutants.size(), 60u);
  std::set<std::string> files;
  for (const Mutant& m : mutants) files.insert(m.file);
  for (const std::string& file : files) {
    ASSERT_TRUE(fs::exists(root / file)) << file;
    EXPECT_EQ(error_of([&] { switched(contents(root / file), file, mutants); }), "");
  }
}

// File of a suite, which may lie in a room of the folder of its kind; empty if there is none.
fs::path suite_file(const std::string& kind, const std::string& suite) {
  for (const auto& entry : fs::recursive_directory_iterator(root / "regression" / kind))
    if (entry.path().filename() == suite + ".cpp") return entry.path();
  return {};
}

// A filter that selects no test would make a mutant look undetected. Therefore its suite must be a file, and the test
// that it names must occur there.
TEST(mutants, filters_name_existing_tests) {
  static const std::regex suite_of(R"((?:\*?/?)(\w+)(?:/\*)?\.(.*))");
  for (const Mutant& m : read_mutants(root / "regression/mutants/list.txt"))
    for (const Try& t : m.tries) {
      std::istringstream parts(t.filter);
      for (std::string part; std::getline(parts, part, ':');) {
        std::smatch match;
        ASSERT_TRUE(std::regex_match(part, match, suite_of)) << m.name << ": " << part;
        const fs::path file = suite_file(t.kind, match[1].str());
        ASSERT_FALSE(file.empty()) << m.name << ": " << part;
        const std::string test = std::regex_replace(match[2].str(), std::regex(R"(/.*)"), "");
        const std::string name = std::regex_replace(std::regex_replace(test, std::regex(R"(\*)"), R"(\w*)"), std::regex(R"(\?)"), R"(\w)");
        const bool stands_there = std::regex_search(contents(file), std::regex(", " + name + R"(\))"));
        EXPECT_TRUE(stands_there) << m.name << ": " << part;
      }
    }
}

const std::string source = "// licence\nint f(int a) {\n  a += 1;\n  return a * 2;\n}\nint g(int a) { return a * 3; }\n";

std::vector<Mutant> one(const std::string& more) { return parse_mutants("mutant x\nfile f.cpp\nwhy because\n" + more, "list"); }

TEST(mutants, expressions_and_statements_become_switches) {
  EXPECT_EQ(
      switched(source, "f.cpp", one("was a * 2\nnow a + 2\n")),
      "// licence\n#include \"regression/mutants/mutant.hpp\"\nint f(int a) {\n  a += 1;\n  return (GYR_MUTANT(\"x\") ? (a + 2) : (a * 2));\n}\n"
      "int g(int a) { return a * 3; }\n");
  EXPECT_NE(switched(source, "f.cpp", one("was a += 1;\nnow\n")).find("  { if (GYR_MUTANT(\"x\")) {  } else { a += 1; } }\n"), std::string::npos);
  EXPECT_NE(switched(source, "f.cpp", one("in int g\nwas int a\nnow int b\n")).find("int g((GYR_MUTANT(\"x\") ? (int b) : (int a))) {"),
            std::string::npos);
}

TEST(mutants, missing_or_ambiguous_snippet_is_named) {
  EXPECT_NE(error_of([] { switched(source, "f.cpp", one("was b * 2\nnow 1\n")); }).find("mutant x: snippet in f.cpp occurs 0 times"),
            std::string::npos);
  EXPECT_NE(error_of([] { switched(source, "f.cpp", one("was a *\nnow 1\n")); }).find("occurs 2 times"), std::string::npos);
  EXPECT_NE(error_of([] { switched(source, "f.cpp", one("in int h\nwas a *\nnow 1\n")); }).find("(field `in`) occurs 0 times"), std::string::npos);
}

TEST(mutants, malformed_list_is_refused_with_line_number) {
  const auto refusal = [](const std::string& text) { return error_of([&] { parse_mutants(text, "list"); }); };
  EXPECT_EQ(refusal("file f.cpp\n"), "list:1: a mutant must start with its name: mutant NAME");
  EXPECT_EQ(refusal("mutant x\nfile f.cpp\nwas a\nnow b\nwhy c\n\nmutant x\n"), "list:7: mutant x occurs twice");
  EXPECT_EQ(refusal("mutant x\nfile f.cpp\nwas a\nnow b\n"), "list:4: mutant x lacks file, was, now or why");
  EXPECT_EQ(refusal("mutant x\nfile f.cpp\nwas a\nnow a\nwhy c\n"), "list:5: mutant x changes nothing");
  for (const char* half : {"f(a", "a)", "a, b", "(a]"})
    EXPECT_EQ(refusal(std::string("mutant x\nfile f.cpp\nwas ") + half + "\nnow b\nwhy c\n"),
              "list:5: mutant x is not a complete expression or statement");
  for (const char* part :
       {"else f();", "else if (a)", "if (a > b)", "const int a = f();", "std::vector<A> all = f(a, b);", "Mask mask{a};", "a > 1 ? b"})
    EXPECT_EQ(refusal(std::string("mutant x\nfile f.cpp\nwas ") + part + "\nnow b\nwhy c\n"),
              "list:5: mutant x is an incomplete statement, or declares a name that later code uses; use an expression inside it instead")
        << part;
  for (const char* good : {"a ? b : c", "A::b > c", "a.b = c;", "return a;", "if (a) b = c;", "a += b * c;", "return std::min(a, b);"})
    EXPECT_EQ(refusal(std::string("mutant x\nfile f.cpp\nwas ") + good + "\nnow b\nwhy c\n"), "") << good;
  EXPECT_EQ(refusal("mutant x\nfile f.cpp\nwas c == '{' || s == \"(\\\"\"\nnow b\nwhy c\n"), "") << "quoted brackets";
  EXPECT_EQ(refusal("mutant x\nfile f.hpp\nwas a\nnow b\nwhy c\n"), "list:5: mutant x: only .cpp files can be switched");
  EXPECT_EQ(refusal("mutant x\nwas a\nwas b\n"), "list:3: was occurs twice in mutant x");
  EXPECT_EQ(refusal("mutant x\nwhat a\n"), "list:2: unknown word what");
  EXPECT_EQ(refusal("mutant x\ntry slow a.*\n"), "list:2: expected: try unit|grid|commands FILTER");
}

}  // namespace
}  // namespace gyr::testing::mutants_suite
