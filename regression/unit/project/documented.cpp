// SPDX-License-Identifier: BSD-3-Clause
// Pages that list names are complete and contain nothing else: environment variables (src/environment.md), fields of
// heartbeats (src/files.md) and keys of cluster files (input/clusters/README.md). src/changes.md has this version.
#include <cstddef>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/planner/machine/cluster.hpp"
#include "src/watch/heartbeat.hpp"

namespace gyr::testing::documented_suite {

namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

const fs::path root(GYR_SOURCE_DIR);

Names found_in(const std::string& text, const std::regex& pattern) {
  Names names;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) names.insert((*match)[1]);
  return names;
}

// Cells of the table rows of a page that begin with a name in backticks or with a digit, without the row of titles.
std::vector<std::vector<std::string>> rows_of(const std::string& page) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream in(contents(root / page));
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("| `") && !std::regex_search(line, std::regex("^\\| [0-9]"))) continue;
    std::istringstream cells(line.substr(1));
    rows.emplace_back();
    for (std::string cell; std::getline(cells, cell, '|');) rows.back().push_back(cell.substr(1, cell.size() - 2));
  }
  return rows;
}

std::string joined(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += " " + name;
  return text;
}

Names without(Names from, const Names& these) {
  for (const std::string& name : these) from.erase(name);
  return from;
}

// Names in capitals that are no environment variables: states of Slurm, PEFT's tasks, types in files, CUDA's codes.
const Names others{"BOOT_FAIL", "NODE_FAIL", "OUT_OF_MEMORY", "CAUSAL_LM", "SEQ_2_SEQ_LM",
                   "SEQ_CLS",   "TOKEN_CLS", "F8_E4M3",       "F8_E5M2",   "CUBLAS_STATUS_SUCCESS"};

// Environment variables that the program reads: literals in capitals with an underscore, and arguments of getenv.
Names variables_of_program() {
  static const std::regex literal(R"re("([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)")re"), read(R"re((?:getenv|environment)\("([A-Z_]+)"\))re");
  Names names;
  for (const char* layer : {"kernels", "modules", "src"})
    for (const auto& entry : fs::recursive_directory_iterator(root / layer)) {
      const std::string ending = entry.path().extension();
      if (ending != ".cpp" && ending != ".hpp" && ending != ".cu") continue;
      const std::string text = contents(entry.path());
      names.merge(found_in(text, literal));
      names.merge(found_in(text, read));
    }
  EXPECT_TRUE(std::includes(names.begin(), names.end(), others.begin(), others.end())) << "a name in `others` is not in the sources";
  return without(names, others);
}

// Environment variables of jobscripts (exported, or of the form GYR...), of CMake and of the Makefile.
Names variables_of_scripts() {
  static const std::regex exported(R"re(export ([A-Z_]+)=)re"), ours(R"re(\b(GYR[A-Z]*_[A-Z_]+|GYRFALCON)\b)re"), cmake(R"re(ENV ([A-Z_]+))re");
  Names names;
  for (const auto& entry : fs::directory_iterator(root / "jobscripts"))
    if (entry.path().extension() == ".sh")
      for (const std::regex& pattern : {exported, ours}) names.merge(found_in(contents(entry.path()), pattern));
  for (const char* file : {"kernels/cuda/toolkit.cmake", "CMakeLists.txt"}) names.merge(found_in(contents(root / file), cmake));
  return names;
}

TEST(documented, every_environment_variable_is_on_the_page) {
  Names page;
  for (const auto& row : rows_of("src/environment.md")) page.merge(found_in(row[0], std::regex("`([A-Z0-9_]+)`")));
  Names read = variables_of_program();
  read.merge(variables_of_scripts());
  EXPECT_GT(read.size(), 50u);
  EXPECT_EQ(joined(without(read, page)), "") << "are read, but not in src/environment.md";
  std::string all;
  for (const auto& entry : fs::directory_iterator(root / "jobscripts"))
    if (entry.is_regular_file()) all += contents(entry.path());
  all += contents(root / "Makefile");
  for (const std::string& name : without(page, read))
    EXPECT_TRUE(std::regex_search(all, std::regex("\\b" + name + "\\b"))) << name << " is in src/environment.md, but nothing reads it";
}

TEST(documented, every_heartbeat_field_has_its_offset) {
  const std::map<std::string, std::pair<std::size_t, std::size_t>> fields{
#define FIELD(name)                                               \
  {                                                               \
#name, { offsetof(Heartbeat, name), sizeof(Heartbeat::name) } \
  }
      FIELD(magic), FIELD(rank),      FIELD(ranks),  FIELD(attempt), FIELD(pid),       FIELD(step),   FIELD(micro),  FIELD(progress), FIELD(written),
      FIELD(moved), FIELD(monotonic), FIELD(waited), FIELD(loss),    FIELD(sent),      FIELD(number), FIELD(bytes),  FIELD(waiting),  FIELD(alarm),
      FIELD(host),  FIELD(phase),     FIELD(task),   FIELD(channel), FIELD(operation), FIELD(worked), FIELD(stepped)};
#undef FIELD
  const std::map<std::string, std::size_t> sizes{{"int32", 4}, {"int64", 8}, {"uint64", 8}, {"double", 8}};
  std::size_t next = 0;
  for (const auto& row : rows_of("src/files.md")) {
    if (row.size() != 4) continue;
    const std::string name = row[2].substr(1, row[2].size() - 2), type = row[1];
    const std::size_t size = type.starts_with("char") ? std::stoul(type.substr(5)) : sizes.at(type);
    ASSERT_TRUE(fields.contains(name)) << name;
    EXPECT_EQ(fields.at(name), std::pair(std::stoul(row[0]), size)) << name;
    EXPECT_EQ(std::stoul(row[0]), next) << "bytes before " << name << " are not on the page";
    next += size;
  }
  EXPECT_EQ(next, sizeof(Heartbeat));
}

TEST(documented, every_cluster_key_is_on_the_page) {
  Names page, keys;
  for (const auto& row : rows_of("input/clusters/README.md"))
    if (row.size() == 4) page.insert(row[0].substr(1, row[0].size() - 2));
  std::string section;
  std::istringstream help(cluster_keys());
  for (std::string line; std::getline(help, line);) {
    std::smatch match;
    if (std::regex_search(line, match, std::regex("^([a-z._]+): "))) section = match[1];
    else if (!section.empty() && std::regex_search(line, match, std::regex("^([a-z][a-z0-9_]*) "))) keys.insert(section + "." + match[1].str());
  }
  EXPECT_GT(keys.size(), 20u) << cluster_keys();
  EXPECT_EQ(joined(without(keys, page)), "") << "are keys, but not in input/clusters/README.md";
  EXPECT_EQ(joined(without(page, keys)), "") << "are in input/clusters/README.md, but no keys";
}

TEST(documented, changelog_begins_with_this_version) {
  std::smatch version, newest;
  const std::string cmake = contents(root / "CMakeLists.txt"), changes = contents(root / "src/changes.md");
  ASSERT_TRUE(std::regex_search(cmake, version, std::regex("project\\(gyrfalcon VERSION ([0-9.]+)")));
  ASSERT_TRUE(std::regex_search(changes, newest, std::regex("\n## ([0-9.]+)")));
  EXPECT_EQ(newest[1], version[1]);
}

}  // namespace

}  // namespace gyr::testing::documented_suite
