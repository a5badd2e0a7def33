// SPDX-License-Identifier: BSD-3-Clause
// Structure of the source tree: includes point one way (kernels <- modules <- src), folders have no include cycle and are small, functions are short.
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>

#include "regression/support/testing.hpp"

namespace gyr::testing::structure_suite {

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

// Opening a pipe waits for its writer, so that a stream on a file of a user may hang. src/base/input_file.hpp never waits.
TEST(structure, product_reads_files_without_streams) {
  static const std::regex stream(R"re(\bifstream\b|\bfopen\b[^;]*"r)re");
  for (const std::string layer : {"kernels", "modules", "src"})
    each_line(layer, [&](const fs::path& file, int number, const std::string& line) {
      EXPECT_FALSE(std::regex_search(line, stream)) << file << ":" << number << " " << line;
    });
}

using FolderGraph = std::map<std::string, std::set<std::string>>;

// The first `depth` components of the folder of `file`, a path from the project's root: src/engine at depth 2 for src/engine/step/engine.hpp.
std::string folder_at(const fs::path& file, int depth) {
  std::string folder;
  for (const fs::path& part : file.parent_path()) {
    if (depth-- == 0) break;
    folder += (folder.empty() ? "" : "/") + part.string();
  }
  return folder;
}

// Includes between files of the product, as pairs of paths from the project's root: including file, included file.
std::vector<std::pair<fs::path, fs::path>> includes_of_product() {
  static const std::regex include(R"re(^\s*#\s*include\s*"((?:kernels|modules|src)/[^"]+)")re");
  const fs::path root(GYR_SOURCE_DIR);
  std::vector<std::pair<fs::path, fs::path>> pairs;
  for (const std::string layer : {"kernels", "modules", "src"})
    each_line(layer, [&](const fs::path& file, int, const std::string& line) {
      std::smatch match;
      if (!std::regex_search(line, match, include) || !fs::exists(root / match[1].str())) return;  // generated headers belong to no folder
      pairs.emplace_back(fs::relative(file, root), fs::path(match[1].str()));
    });
  return pairs;
}

// The folders of one include cycle in the order of their includes, as "a -> b -> a"; empty if there is none.
std::string include_cycle(const FolderGraph& included) {
  std::set<std::string> done;
  std::vector<std::string> path;
  std::string cycle;
  const std::function<void(const std::string&)> visit = [&](const std::string& folder) {
    const auto begin = std::find(path.begin(), path.end(), folder);
    if (begin != path.end() && cycle.empty()) {
      for (auto f = begin; f != path.end(); ++f) cycle += *f + " -> ";
      cycle += folder;
    }
    if (begin != path.end() || done.contains(folder)) return;
    path.push_back(folder);
    if (included.contains(folder))
      for (const std::string& next : included.at(folder)) visit(next);
    path.pop_back();
    done.insert(folder);
  };
  for (const auto& [folder, next] : included) visit(folder);
  return cycle;
}

TEST(structure, include_cycle_is_found_between_folder_and_subfolder) {
  EXPECT_EQ(include_cycle({{"a", {"a/b"}}, {"a/b", {"a"}}}), "a -> a/b -> a");
  EXPECT_EQ(include_cycle({{"a", {"b", "c"}}, {"b", {"c"}}}), "");
  EXPECT_EQ(folder_at("src/gguf/families/llama.cpp", 2), "src/gguf");
  EXPECT_EQ(folder_at("src/gguf/families/llama.cpp", 9), "src/gguf/families");
}

TEST(structure, folders_have_no_include_cycle_at_any_depth) {
  const auto includes = includes_of_product();
  EXPECT_GT(includes.size(), 2000u);
  for (int depth = 1; depth <= 5; ++depth) {
    FolderGraph included;
    for (const auto& [from, to] : includes)
      if (folder_at(from, depth) != folder_at(to, depth)) included[folder_at(from, depth)].insert(folder_at(to, depth));
    EXPECT_EQ(include_cycle(included), "") << "at depth " << depth;
  }
}

TEST(structure, folders_have_at_most_65_source_files) {
  for (const std::string layer : {"kernels", "modules", "src", "regression"}) {
    std::map<std::string, int> files;
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(GYR_SOURCE_DIR) / layer))
      if (is_code(entry.path())) ++files[entry.path().parent_path()];
    EXPECT_GT(files.size(), 3u) << layer;
    for (const auto& [folder, count] : files) EXPECT_LE(count, 65) << folder;
  }
}

TEST(structure, only_main_is_next_to_the_source_folders) {
  for (const auto& entry : fs::directory_iterator(fs::path(GYR_SOURCE_DIR) / "src"))
    EXPECT_TRUE(entry.is_directory() || !is_code(entry.path()) || entry.path().filename() == "main.cpp" ||
                entry.path().filename() == "version.hpp.in")
        << entry.path();
}

// The files that README.md lists under "Source tour" exist, and a newcomer reads all of them in one sitting.
TEST(structure, source_tour_has_at_most_900_lines) {
  const fs::path root(GYR_SOURCE_DIR);
  std::ifstream in(root / "README.md");
  std::string text, line;
  bool inside = false;
  while (std::getline(in, line)) {
    if (line.starts_with("## ")) inside = line == "## Source tour";
    if (inside) text += line + "\n";
  }
  static const std::regex name(R"re(`((?:src|modules|kernels)/[a-z_/0-9]+\.[ch]pp)`)re");
  int files = 0, lines = 0;
  for (std::sregex_iterator match(text.begin(), text.end(), name), end; match != end; ++match, ++files) {
    std::ifstream file(root / (*match)[1].str());
    EXPECT_TRUE(file.good()) << (*match)[1];
    while (std::getline(file, line)) ++lines;
  }
  EXPECT_GE(files, 8);
  EXPECT_LE(lines, 900);
}

// Two types of one name in one namespace are one type to a linker, which takes the inline functions of either, as those of a vector of them.
TEST(structure, headers_define_a_type_once) {
  static const std::regex begin(R"re(^namespace ([\w:]+) \{)re"), end(R"re(^\}  // namespace)re"),
      type(R"re(^(?:(?:struct|class|union|enum class|enum) (\w+)\b(?!<)[^;{]*\{|using (\w+) = ))re");
  std::map<std::string, std::string> header_of;
  std::vector<std::string> spaces;
  for (const std::string layer : {"kernels", "modules", "src"})
    each_line(layer, [&](const fs::path& file, int number, const std::string& line) {
      if (file.extension() != ".hpp" || file.string().find("/emulation/") != std::string::npos) return;  // which stands for the rest of its folder
      if (number == 1) spaces.clear();
      std::smatch match;
      if (std::regex_search(line, match, begin)) spaces.push_back(match[1]);
      else if (std::regex_search(line, end) && !spaces.empty()) spaces.pop_back();
      else if (std::regex_search(line, match, type)) {
        std::string name;
        for (const std::string& space : spaces) name += space + "::";
        const auto [other, first] = header_of.emplace(name + match[1].str() + match[2].str(), file);
        EXPECT_TRUE(first || other->second == file) << other->first << " is in " << file << " and in " << other->second;
      }
    });
  EXPECT_GT(header_of.size(), 300u);
}

// Tests are compiled several files at once, so each file keeps its names in a namespace of its own.
TEST(structure, names_of_a_suite_lie_in_its_namespace) {
  static const std::regex begin(R"re(^namespace [\w:]*::(\w+)_suite \{)re");
  for (const std::string folder : {"unit", "grid", "commands", "cuda"}) {
    std::set<std::string> files, suites;
    each_line("regression/" + folder, [&](const fs::path& file, int, const std::string& line) {
      if (file.extension() != ".cpp" || (folder == "cuda" && file.parent_path().filename() != folder)) return;
      files.insert(file.stem());
      std::smatch match;
      if (std::regex_search(line, match, begin)) suites.insert(match[1]);
    });
    EXPECT_GT(files.size(), 8u) << folder;
    EXPECT_EQ(suites, files) << folder;
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

// A property that depends on a layer's type is a trait that the type registers (modules/model/layer_traits.hpp). Only the
// two model formats compare symbols, because they name the layers of other programs.
TEST(structure, layer_symbols_are_compared_only_by_formats) {
  static const std::regex comparison(R"re((pattern|layers|symbol)\b.*('[A-Z*]'|== '-'|(find|of)\("[A-Z*-]+"))re");
  for (const char* compared : {"layers.find('E') == npos", "if (symbol == 'P') return;", "c.pattern.find_first_not_of(\"*-B\")"})
    EXPECT_TRUE(std::regex_search(std::string(compared), comparison)) << compared;
  each_line("src", [&](const fs::path& file, int number, const std::string& line) {
    const std::string folder = fs::relative(file, fs::path(GYR_SOURCE_DIR) / "src").begin()->string();
    const bool of_format = folder == "huggingface" || folder == "gguf";
    EXPECT_TRUE(of_format || !std::regex_search(line, comparison)) << file << ":" << number << " " << line;
  });
}

// HDF5 is not thread-safe, and only src/hdf5 serializes its calls. A call from elsewhere during a background save
// corrupts its memory.
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

// Host reads of device memory are counted (kernels/ops/sum.hpp). No layer, head or step may read the device in another way.
TEST(structure, device_memory_is_read_only_where_counted) {
  static const std::regex copy(R"re(create_mirror_view_and_copy)re");
  const auto no_copy = [](const fs::path& file, int number, const std::string& line) {
    EXPECT_FALSE(std::regex_search(line, copy)) << file << ":" << number;
  };
  each_line("modules", no_copy);
  each_line("src/engine", [&](const fs::path& file, int number, const std::string& line) {
    if (file.filename() != "replicas.cpp") no_copy(file, number, line);  // reads full weights, between steps
  });
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

// First line and length of a function that is defined at namespace scope. Its last line is `}` in column 0: types end
// with `};`, and namespaces with a comment. Its first line is the last line above that begins in column 0, except
// preprocessor lines and the `catch` of a function try block.
struct Function {
  fs::path file;
  int first, lines;
  std::string name;
};
std::vector<Function> functions_of(const fs::path& file) {
  std::vector<Function> functions;
  Function last{file, 0, 0, ""};
  std::ifstream in(file);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line == "}") functions.push_back({file, last.first, number - last.first + 1, last.name});
    if (!line.empty() && std::string_view(" #}/").find(line[0]) == std::string_view::npos) last.first = number, last.name = line;
  }
  return functions;
}

// A function is read as a unit, so it must fit on a page.
TEST(structure, functions_are_short) {
  const std::map<std::string, int> longest{{"kernels", 60}, {"modules", 60}, {"src", 60}};
  for (const auto& [layer, limit] : longest) {
    int seen = 0;
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(GYR_SOURCE_DIR) / layer)) {
      if (!is_code(entry.path())) continue;
      for (const Function& f : functions_of(entry.path())) {
        ++seen;
        EXPECT_LE(f.lines, limit) << f.file << ":" << f.first << " " << f.name;
      }
    }
    EXPECT_GT(seen, 50) << layer;
  }
}

}  // namespace

}  // namespace gyr::testing::structure_suite
