// SPDX-License-Identifier: BSD-3-Clause
// The numbers of every step as JSON, one object per line, for pandas and gnuplot. Lines are appended and flushed one by
// one; what is not finite is null.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "src/report/step_report.hpp"

namespace gyr {

std::string json_of(const StepReport&);        // {"kind":"step","time":...}
std::string json_of(const ValidationReport&);  // {"kind":"validation","time":...}
std::string key_of(std::string figure);        // what a line calls it: "macro F1" is macro_f1

class JsonLines {
 public:
  // Opens for appending; a line that a killed run left unfinished is ended. Error(io) when the file cannot be written, or is a symbolic link.
  explicit JsonLines(const std::filesystem::path& file);
  void write(const StepReport& report) { line(json_of(report)); }
  void write(const ValidationReport& report) { line(json_of(report)); }
  void line(const std::string& json);  // any other object, already in JSON

 private:
  std::string name_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace gyr
