// SPDX-License-Identifier: BSD-3-Clause
// Tests of the regression table, run.sh: a deviating run fails with its step and log, and no golden curve is changed by
// mistake.
#include <gtest/gtest.h>

#include <regex>

#include "kernels/base/error.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/process.hpp"

namespace gyr::testing::regression_suite {

namespace fs = std::filesystem;

namespace {

constexpr const char* tiny = R"(about      For the tests of the table
deck       hybrid.yaml
data       text
precision  fp32
steps      6
stop       3 steps
grids      1x1x1 2x1x1 1x1x1>1x1x1
)";

// Copy of run.sh and its cases, plus a small case `tiny`, in a temporary folder.
class Table {
 public:
  Table() {
    fs::copy(fs::path(GYR_SOURCE_DIR) / "regression/run.sh", folder_ / "run.sh");
    fs::copy(fs::path(GYR_SOURCE_DIR) / "regression/table", folder_ / "table");
    put_contents(folder_ / "table/tiny.case", tiny);
  }
  Result call(const Words& more, const Words& start = {"--launcher", GYR_MPIEXEC, "--binary", program()}) const {
    Words words{folder_ / "run.sh", "--work", work()};
    words.insert(words.end(), start.begin(), start.end());
    words.insert(words.end(), more.begin(), more.end());
    return execute(words);
  }
  void only_one_rank() const { put_contents(file("table/tiny.case"), std::regex_replace(tiny, std::regex("grids.*"), "grids 1x1x1")); }
  fs::path work() const { return folder_ / "work"; }
  fs::path golden() const { return folder_ / "table/tiny.golden"; }
  fs::path tolerances() const { return folder_ / "table/fp32.tolerances"; }
  fs::path file(const std::string& name) const { return folder_ / name; }

 private:
  Folder folder_;
};

const std::string& golden_curve() {
  static const std::string curve = [] {
    const Table table;
    const Result r = table.call({"--only", "tiny", "--rewrite", "made for\nthe tests"});
    ensure(r.code == 0, "{}{}", r.out, r.err);
    return contents(table.golden());
  }();
  return curve;
}

struct Ready : Table {
  Ready() { put_contents(golden(), golden_curve()); }
};

// The golden curve with the value of `column` at `step` multiplied by `factor`.
std::string doctored(int step, int column, double factor) {
  std::string text;
  for (const std::string& line : lines_of(golden_curve())) {
    Words fields;
    std::stringstream in(line);
    for (std::string field; std::getline(in, field, '\t');) fields.push_back(field);
    if (fields[0] == std::to_string(step)) fields[std::size_t(column)] = fmt::format("{}", std::stod(fields[std::size_t(column)]) * factor);
    for (std::size_t i = 0; i < fields.size(); ++i) text += (i > 0 ? "\t" : "") + fields[i];
    text += '\n';
  }
  return text;
}

bool has(const std::string& text, const std::string& pattern) { return std::regex_search(text, std::regex(pattern)); }

}  // namespace

TEST(regression, rewritten_golden_curve_records_version_date_and_reason) {
  for (const char* line : {"# reason     made for the tests\n", "# date       20\\d\\d-", "# version    \\d+\\.\\d+.*, git \\w+",
                           "# grid       1x1x1\n", "# agreed on  1x1x1 2x1x1 1x1x1>1x1x1\n", "\n6\t\\d\\S*\t\\d\\S*\t\\d*"})
    EXPECT_TRUE(has(golden_curve(), line)) << line << golden_curve();
}

TEST(regression, table_lists_held_runs_and_counts_skipped_ones) {
  const Ready table;
  const Result r = table.call({"--only", "tiny", "--ranks", "1"});
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_TRUE(has(r.out, "\ntiny +1  1x1x1 +6  golden .* held\n")) << r.out;
  EXPECT_TRUE(has(r.out, "\ntiny +2  2x1x1 +6 .* skipped\n")) << r.out;
  EXPECT_TRUE(has(r.out, "\ntiny +1  1x1x1>1x1x1 +6  bits +0  loss 1 +0 +0 .* held\n")) << r.out;
  EXPECT_TRUE(has(r.out, "\n2 held, 0 failed, 1 skipped")) << r.out;
  EXPECT_FALSE(fs::exists(table.work() / "tiny"));
}

TEST(regression, deviation_beyond_tolerance_fails_with_step_and_log) {
  const Ready table;
  table.only_one_rank();
  for (const auto& [column, name] : {std::pair(1, "loss"), {2, "grad_norm"}}) {
    put_contents(table.golden(), doctored(4, column, 1.01));
    const Result r = table.call({"--only", "tiny", "--ranks", "1"});
    EXPECT_EQ(r.code, 1);
    const std::string line =
        fmt::format("\nFAILED tiny 1x1x1: step 4: {} is \\d\\S*, in the golden curve \\d\\S*: off by 9.9e-03, allowed 1e-\\d; log (\\S+)\n", name);
    std::smatch match;
    ASSERT_TRUE(std::regex_search(r.out, match, std::regex(line))) << r.out << r.err;
    EXPECT_NE(contents(match[1].str()).find("RUN OK"), std::string::npos);
  }
}

TEST(regression, deviation_within_tolerance_holds_missing_step_fails) {
  const Ready table;
  table.only_one_rank();
  put_contents(table.golden(), doctored(4, 1, 1 + 1e-6));
  EXPECT_EQ(table.call({"--only", "tiny", "--ranks", "1"}).code, 0);
  put_contents(table.golden(), golden_curve() + "7\t5\t1\t-\n");
  const Result r = table.call({"--only", "tiny", "--ranks", "1"});
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.out, "FAILED tiny 1x1x1: step 7: loss is none, in the golden curve 5")) << r.out;
}

TEST(regression, golden_curve_of_other_token_files_is_refused) {
  const Ready table;
  put_contents(table.golden(), std::regex_replace(golden_curve(), std::regex("# data .*"), "# data       1"));
  const Result r = table.call({"--only", "tiny"});
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.out, "FAILED tiny: the token files .* are not those of ")) << r.out;
}

// A program that ignores --resume and starts over would end with the same curve.
TEST(regression, resume_that_starts_over_fails) {
  const Ready table;
  put_contents(table.file("forgetful"), "#!/bin/bash\nexec " + program() + " \"${@/--resume/--anew}\"\n");
  fs::permissions(table.file("forgetful"), fs::perms::owner_all);
  const Result r = table.call({"--only", "tiny", "--ranks", "1"}, {"--launcher", GYR_MPIEXEC, "--binary", table.file("forgetful")});
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.out, "FAILED tiny 1x1x1>1x1x1: the run started over")) << r.out << r.err;
}

TEST(regression, rewrite_is_refused_when_grids_disagree) {
  const Ready table;
  put_contents(table.tolerances(), "* 0 0\n");
  const Result r = table.call({"--only", "tiny", "--rewrite", "to see it refused"});
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.out, "FAILED tiny 2x1x1: ")) << r.out;
  EXPECT_EQ(contents(table.golden()), golden_curve());
}

TEST(regression, wrong_arguments_change_nothing_and_return_their_codes) {
  const Ready table;
  const auto refused = [&](const Words& words, const Words& start, Exit code, const std::string& part) {
    const Result r = table.call(words, start);
    EXPECT_EQ(r.code, int(code)) << r.out << r.err;
    EXPECT_NE(r.err.find(part), std::string::npos) << r.err;
    EXPECT_EQ(contents(table.golden()), golden_curve());
  };
  refused({"--only", "tiny", "--rewrite"}, {}, Exit::usage, "--rewrite takes the reason");
  refused({"--rewrite", " ", "--only", "tiny"}, {}, Exit::usage, "--rewrite takes the reason");
  refused({"--rewrite", "--only", "tiny"}, {}, Exit::usage, "--rewrite takes the reason");
  refused({"--only", "tini"}, {}, Exit::usage, "there are: another-grid attention ");
  refused({"--onyl", "tiny"}, {}, Exit::usage, "unknown word '--onyl'");
  refused({"--ranks", "0"}, {}, Exit::usage, "--ranks takes a number");
  refused({"--only", "tiny"}, {"--binary", table.file("none")}, Exit::missing, "build it (make), or name it with --binary");
  refused({"--only", "tiny"}, {"--binary", program(), "--launcher", "no-such-launcher -x"}, Exit::device, "no-such-launcher does not exist");
  refused({"--only", "tiny"}, {"--binary", program(), "--launcher", "false"}, Exit::device, "'false -n 1 ");
  put_contents(table.file("table/tiny.case"), std::string(tiny) + "stepz 3\n");
  refused({"--only", "tiny"}, {}, Exit::data, "tiny.case:8: unknown key 'stepz'");
  put_contents(table.file("table/tiny.case"), std::regex_replace(tiny, std::regex("1x1x1 2x1x1"), "2x1x1"));
  refused({"--only", "tiny"}, {}, Exit::data, "'1x1x1>1x1x1' needs the run 1x1x1 before it");
}

TEST(regression, every_case_is_listed_with_a_golden_curve) {
  const fs::path table = fs::path(GYR_SOURCE_DIR) / "regression/table";
  const Result r = execute({fs::path(GYR_SOURCE_DIR) / "regression/run.sh", "--list"});
  ASSERT_EQ(r.code, 0) << r.err;
  int cases = 0;
  for (const auto& entry : fs::directory_iterator(table)) {
    if (entry.path().extension() != ".case") continue;
    cases += 1;
    const std::string name = entry.path().stem();
    EXPECT_TRUE(has(r.out, "(^|\n)" + name + " ")) << r.out;
    EXPECT_TRUE(fs::exists(table / (name + ".golden"))) << name;
  }
  EXPECT_GE(cases, 10);
}

}  // namespace gyr::testing::regression_suite
