// SPDX-License-Identifier: BSD-3-Clause
// Formats a table: computes the widths of all columns first, then the lines.
#include "src/base/table.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"

namespace gyr {
namespace {

// Number of characters that a terminal shows; UTF-8 continuation bytes do not count.
std::size_t width_of(const std::string& text) {
  return std::size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width, bool right) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return right ? space + text : text + space;
}

// Breaks text into lines at spaces; a word wider than the column is split.
std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines(1);
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = std::min(text.find(' ', begin), text.size());
    std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (!lines.back().empty() && width_of(lines.back()) + 1 + width_of(word) > width) lines.emplace_back();
    for (; width_of(word) > width; lines.emplace_back()) {
      std::size_t break_at = width;
      while (width_of(word.substr(0, break_at)) < width || (word[break_at] & 0xc0) == 0x80) ++break_at;
      lines.back() = word.substr(0, break_at);
      word.erase(0, break_at);
    }
    lines.back().append(lines.back().empty() ? "" : " ").append(word);
  }
  return lines;
}

// Breaks a cell of the first column into lines. Further lines are indented, so that a wrapped name does not look like
// several rows.
std::vector<std::string> hanging(const std::string& text, std::size_t width) {
  constexpr std::size_t indent = 2;
  if (width_of(text) <= width || width <= indent) return wrapped(text, std::max<std::size_t>(width, 1));
  std::vector<std::string> lines = wrapped(text, width - indent);
  for (std::size_t i = 1; i < lines.size(); ++i) lines[i].insert(0, indent, ' ');
  return lines;
}

std::string line_of(const std::vector<std::string>& cells, const std::vector<TableColumn>& columns, const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t c = 0; c < cells.size(); ++c) line.append(c ? "  " : "").append(padded(cells[c], widths[c], columns[c].right));
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

}  // namespace

void Table::row(std::vector<std::string> cells) {
  ensure(cells.size() == columns_.size(), "table: {} cells for {} columns", cells.size(), columns_.size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
  is_heading_.push_back(false);
}

void Table::heading(std::string text) {
  rows_.push_back({std::move(text)});
  is_heading_.push_back(true);
}

std::string Table::str(bool titles) const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = titles ? width_of(columns_[c].title) : 0;
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (!is_heading_[r]) width = std::max(width, std::min(width_of(rows_[r][c]), columns_[c].at_most));
    widths.push_back(width);
  }

  std::string text;
  if (titles) {
    std::vector<std::string> names;
    for (const TableColumn& column : columns_) names.push_back(column.title);
    text += line_of(names, columns_, widths);
  }
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    if (is_heading_[r]) {
      text += '\n' + rows_[r][0] + '\n';
      continue;
    }
    std::vector<std::vector<std::string>> cells;
    std::size_t lines = 1;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      cells.push_back(c == 0 ? hanging(rows_[r][c], widths[c]) : wrapped(rows_[r][c], std::max<std::size_t>(widths[c], 1)));
      lines = std::max(lines, cells.back().size());
    }
    for (std::size_t l = 0; l < lines; ++l) {
      std::vector<std::string> line;
      for (const auto& cell : cells) line.push_back(l < cell.size() ? cell[l] : "");
      text += line_of(line, columns_, widths);
    }
  }
  return text;
}

}  // namespace gyr
