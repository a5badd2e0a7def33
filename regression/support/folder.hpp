// SPDX-License-Identifier: BSD-3-Clause
// A temporary folder for one test, which is removed when the test ends; helpers for files and errors.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "kernels/base/error.hpp"

namespace gyr::testing {

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gyrfalcon-XXXXXX").string();
    ensure(mkdtemp(pattern.data()) != nullptr, "no temporary folder");
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }
  std::size_t files() const { return std::size_t(std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator())); }

 private:
  std::filesystem::path path_;
};

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline void put_contents(const std::filesystem::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// The Error that f throws; an Error with code Exit::ok if it throws none.
template <class F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  return Error(Exit::ok, "no error");
}

}  // namespace gyr::testing
