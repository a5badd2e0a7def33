// SPDX-License-Identifier: BSD-3-Clause
// A text table with aligned columns, no wider than the terminal: long cells and titles wrap inside their column, and
// columns that still do not fit follow below, in a second table.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace gyr {

struct TableColumn {
  std::string title;
  bool right = false;        // true: right-aligned, as for numbers
  std::size_t at_most = 40;  // maximum width in characters; longer cells wrap
};

class Table {
 public:
  // `keys`: number of leading columns that name a row; a second table repeats them.
  explicit Table(std::vector<TableColumn> columns, std::size_t keys = 1) : columns_(std::move(columns)), keys_(keys) {}
  void row(std::vector<std::string> cells);  // adds a row; one cell per column
  void heading(std::string text);            // adds a heading on its own line, after an empty line
  // The text, at most `width` columns wide; lines end in '\n' and have no trailing spaces.
  std::string str(bool titles, std::size_t width) const;
  std::string str(bool titles = true) const;  // as wide as standard output

 private:
  using Widths = std::vector<std::size_t>;
  Widths natural_widths(bool titles, bool wrap_titles) const;
  Widths widths_within(std::size_t width, bool titles) const;
  std::vector<std::vector<std::size_t>> parts_within(std::size_t width, const Widths&) const;
  std::string text_of(const std::vector<std::size_t>& shown, const Widths&, bool titles) const;

  std::vector<TableColumn> columns_;
  std::size_t keys_;
  std::vector<std::vector<std::string>> rows_;  // a heading is a row with one cell, whatever the number of columns
  std::vector<bool> is_heading_;
};

}  // namespace gyr
