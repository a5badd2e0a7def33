// SPDX-License-Identifier: BSD-3-Clause
// Metrics of every step as JSON, one object per line, for pandas and gnuplot. Each line is appended and flushed at
// once. Values that are not finite are written as null.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "src/report/step_report.hpp"

namespace gyr {

std::string json_of(const StepReport&);        // a JSON line {"kind":"step","time":...}
std::string json_of(const ValidationReport&);  // a JSON line {"kind":"validation","time":...}
std::string key_of(std::string figure);        // JSON key of a metric: macro_f1 for "macro F1"

class JsonLines {
 public:
  // Opens the file for appending and terminates an incomplete last line of a killed run. Exit::io if it cannot be
  // written or is a symbolic link.
  explicit JsonLines(const std::filesystem::path& file);
  void write(const StepReport& report) { line(json_of(report)); }
  void write(const ValidationReport& report) { line(json_of(report)); }
  void line(const std::string& json);  // appends any other JSON object

 private:
  std::string name_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace gyr
