// SPDX-License-Identifier: BSD-3-Clause
// A text table with aligned columns; long cells wrap inside their column.
#pragma once

#include <string>
#include <vector>

namespace gyr {

struct TableColumn {
  std::string title;
  bool right = false;        // true: right-aligned, as for numbers
  std::size_t at_most = 40;  // maximum width in characters; longer cells wrap
};

class Table {
 public:
  explicit Table(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}
  void row(std::vector<std::string> cells);   // adds a row; one cell per column
  void heading(std::string text);             // adds a heading on its own line, after an empty line
  std::string str(bool titles = true) const;  // the text; lines end in '\n' and have no trailing spaces

 private:
  std::vector<TableColumn> columns_;
  std::vector<std::vector<std::string>> rows_;  // a heading is a row with one cell, whatever the number of columns
  std::vector<bool> is_heading_;
};

}  // namespace gyr
