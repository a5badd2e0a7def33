// SPDX-License-Identifier: BSD-3-Clause
// A table of text whose columns line up; long cells wrap inside their column.
#pragma once

#include <string>
#include <vector>

namespace gyr {

struct TableColumn {
  std::string title;
  bool right = false;        // numbers stand to the right
  std::size_t at_most = 40;  // characters; longer cells wrap
};

class Table {
 public:
  explicit Table(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}
  void row(std::vector<std::string> cells);   // as many cells as columns
  void heading(std::string text);             // a line of its own, after an empty line
  std::string str(bool titles = true) const;  // lines end in '\n', none has spaces at its end

 private:
  std::vector<TableColumn> columns_;
  std::vector<std::vector<std::string>> rows_;  // a heading is a row of one cell, whatever the number of columns
  std::vector<bool> is_heading_;
};

}  // namespace gyr
