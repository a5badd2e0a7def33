// SPDX-License-Identifier: BSD-3-Clause
// A folder that appears whole or not at all: filled under a temporary name, then renamed.
#pragma once

#include <filesystem>
#include <functional>

namespace gyr {

class OutputFolder {
 public:
  enum class Existing { refuse, replace };
  // Makes the temporary folder FINAL.tmp. Exit::usage where FINAL is there and not empty, unless it is to be replaced and `replaceable`
  // says so of every name in it (nothing but plain files may be), and where FINAL.tmp is there, which may be another process' work or
  // the rest of a killed one; with Existing::replace it is removed. Exit::io, Exit::missing.
  OutputFolder(const std::filesystem::path& final_path, Existing, const std::function<bool(const std::string& name)>& replaceable);
  OutputFolder(const OutputFolder&) = delete;
  ~OutputFolder();  // removes the temporary folder with what is in it, unless commit() has returned

  std::filesystem::path operator/(const std::string& name) const { return temporary_ / name; }
  void commit();  // the folder gets its name, and one of that name is gone

 private:
  std::filesystem::path final_, temporary_;
  bool owner_ = false;
};

}  // namespace gyr
