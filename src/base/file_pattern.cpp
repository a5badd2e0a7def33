// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/file_pattern.hpp"

#include <glob.h>

#include "kernels/base/error.hpp"

namespace gyr {

namespace {

void add_matching(const std::string& pattern, std::vector<std::filesystem::path>& files) {
  glob_t found{};
  const int code = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  for (std::size_t i = 0; code == 0 && i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  require(code != GLOB_NOMATCH, Exit::missing, "{}: matches no file", pattern);
  require(code == 0, Exit::io, "{}: a folder of this pattern cannot be read", pattern);
}

}  // namespace

std::vector<std::filesystem::path> files_named(const std::vector<std::string>& words) {
  std::vector<std::filesystem::path> files;
  for (const std::string& word : words) {
    std::error_code ignored;
    require(!std::filesystem::is_directory(word, ignored), Exit::data, "{}: is a folder, not a file; name its files, as in '{}'", word,
            (std::filesystem::path(word) / "*").string());
    if (word.find_first_of("*?[") == word.npos || std::filesystem::exists(word, ignored)) files.emplace_back(word);
    else add_matching(word, files);
  }
  return files;
}

}  // namespace gyr
