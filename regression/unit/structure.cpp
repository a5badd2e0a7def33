// SPDX-License-Identifier: BSD-3-Clause
// The structure of the sources: includes point one way (kernels <- modules <- src), and no file above kernels/ includes a backend's folder.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "regression/testing.hpp"

namespace {

namespace fs = std::filesystem;

bool is_code(const fs::path& file) {
  static const std::set<std::string> endings{".hpp", ".cpp", ".cu", ".cuh", ".in"};
  return endings.contains(file.extension());
}

// Layers whose headers a file of `layer` may include.
std::set<std::string> allowed(const std::string& layer) {
  if (layer == "kernels") return {"kernels"};
  if (layer == "modules") return {"kernels", "modules"};
  return {"kernels", "modules", "src"};
}

template <class Visit>
void each_line(const std::string& layer, Visit&& visit) {
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(GYR_SOURCE_DIR) / layer)) {
    if (!is_code(entry.path())) continue;
    std::ifstream in(entry.path());
    int number = 0;
    for (std::string line; std::getline(in, line);) visit(entry.path(), ++number, line);
  }
}

TEST(structure, includes_point_one_way) {
  static const std::regex include(R"re(^\s*#\s*include\s*"([^/"]+)/([^"]*)")re");
  for (const std::string layer : {"kernels", "modules", "src"}) {
    int seen = 0;
    each_line(layer, [&](const fs::path& file, int number, const std::string& line) {
      std::smatch match;
      if (!std::regex_search(line, match, include)) return;
      ++seen;
      EXPECT_TRUE(allowed(layer).contains(match[1])) << file << ":" << number << " " << line;
      if (layer != "kernels") {
        EXPECT_EQ(match[2].str().find("kokkos/"), std::string::npos) << file << ":" << number << " names a backend's own header";
      }
    });
    EXPECT_GT(seen, 10) << layer;
  }
}

TEST(structure, no_preprocessor_branches_above_kernels) {
  static const std::regex branch(R"re(^\s*#\s*(if|ifdef|ifndef|elif)\b)re");
  const std::set<std::string> excused{"driver.cpp"};  // follows a change of the HDF5 library's own interface
  for (const std::string layer : {"modules", "src"})
    each_line(layer, [&](const fs::path& file, int number, const std::string& line) {
      EXPECT_TRUE(excused.contains(file.filename()) || !std::regex_search(line, branch)) << file << ":" << number;
    });
}

// HDF5 serves one thread at a time, and src/hdf5 keeps the order: a call from elsewhere beside a background save corrupts its memory.
TEST(structure, only_one_folder_calls_hdf5) {
  static const std::regex call(R"re(\bH5[A-Z]?\w+\s*\(|<hdf5\.h>)re");
  int seen = 0;
  each_line("src", [&](const fs::path& file, int number, const std::string& line) {
    if (!std::regex_search(line, call)) return;
    ++seen;
    EXPECT_EQ(file.parent_path().filename(), "hdf5") << file << ":" << number << " " << line;
  });
  EXPECT_GT(seen, 10);
}

TEST(structure, every_file_names_its_licence) {
  for (const std::string layer : {"kernels", "modules", "src"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(GYR_SOURCE_DIR) / layer)) {
      if (!is_code(entry.path())) continue;
      std::ifstream in(entry.path());
      std::string first;
      std::getline(in, first);
      EXPECT_EQ(first, "// SPDX-License-Identifier: BSD-3-Clause") << entry.path();
    }
}

}  // namespace
