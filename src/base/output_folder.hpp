// SPDX-License-Identifier: BSD-3-Clause
// A folder that appears completely or not at all: filled under a temporary name, then renamed.
#pragma once

#include <filesystem>
#include <functional>

namespace gyr {

class OutputFolder {
 public:
  enum class Existing { refuse, replace };
  // Creates the temporary folder FINAL.tmp. Exit::usage if FINAL exists and is not empty, unless it is to be replaced
  // and contains only plain files for whose names `replaceable` returns true. Exit::usage also if FINAL.tmp exists,
  // which another process may be writing or a killed one may have left; Existing::replace removes it. Exit::io,
  // Exit::missing.
  OutputFolder(const std::filesystem::path& final_path, Existing, const std::function<bool(const std::string& name)>& replaceable);
  OutputFolder(const OutputFolder&) = delete;
  ~OutputFolder();  // removes the temporary folder and its contents, unless commit() has returned

  std::filesystem::path operator/(const std::string& name) const { return temporary_ / name; }
  void commit();  // renames the folder to its final name; an existing folder of that name is removed

 private:
  std::filesystem::path final_, temporary_;
  bool owner_ = false;
};

}  // namespace gyr
