// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/table.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/base/terminal.hpp"

namespace gyr {
namespace {

std::string padded(const std::string& text, std::size_t width, bool right) {
  const std::string space(width - std::min(width, shown_width(text)), ' ');
  return right ? space + text : text + space;
}

// Breaks a cell of the first column into lines. Further lines are indented more than the first one, so that a wrapped name
// does not look like several rows.
std::vector<std::string> hanging(const std::string& text, std::size_t width) {
  constexpr std::size_t indent = 2;
  const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
  if (shown_width(text) <= width || width <= begin + indent) return broken_lines(text, std::max<std::size_t>(width, 1));
  std::vector<std::string> lines = broken_lines(text.substr(begin), width - begin - indent);
  for (std::size_t i = 0; i < lines.size(); ++i) lines[i].insert(0, begin + (i > 0 ? indent : 0), ' ');
  return lines;
}

std::size_t longest_word(const std::string& text) {
  std::size_t longest = 0;
  for (std::size_t begin = 0, end = 0; end < text.size(); begin = end + 1) {
    end = std::min(text.find(' ', begin), text.size());
    longest = std::max(longest, shown_width(text.substr(begin, end - begin)));
  }
  return longest;
}

constexpr std::size_t column_gap = 2, narrowest_text = 20;

std::size_t total_of(const std::vector<std::size_t>& widths) {
  std::size_t total = widths.empty() ? 0 : column_gap * (widths.size() - 1);
  for (const std::size_t width : widths) total += width;
  return total;
}

// Lines of one row, whose cells have been broken into lines.
std::string row_lines(const std::vector<std::vector<std::string>>& cells, const std::vector<bool>& right, const std::vector<std::size_t>& widths) {
  std::size_t lines = 0;
  for (const auto& cell : cells) lines = std::max(lines, cell.size());
  std::string text;
  for (std::size_t l = 0; l < lines; ++l) {
    std::string line;
    for (std::size_t c = 0; c < cells.size(); ++c)
      line.append(c ? std::string(column_gap, ' ') : "").append(padded(l < cells[c].size() ? cells[c][l] : "", widths[c], right[c]));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
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

Table::Widths Table::natural_widths(bool titles, bool wrap_titles) const {
  Widths widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const std::string& title = columns_[c].title;
    std::size_t width = !titles ? 0 : wrap_titles ? longest_word(title) : shown_width(title);
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (!is_heading_[r]) width = std::max(width, std::min(shown_width(rows_[r][c]), columns_[c].at_most));
    widths.push_back(width);
  }
  return widths;
}

// If the columns are too wide, titles wrap first, then the widest columns of text become narrower.
Table::Widths Table::widths_within(std::size_t width, bool titles) const {
  Widths widths = natural_widths(titles, false);
  if (total_of(widths) > width) widths = natural_widths(titles, true);
  while (total_of(widths) > width) {
    std::size_t widest = columns_.size();
    for (std::size_t c = 0; c < columns_.size(); ++c)
      if (!columns_[c].right && widths[c] > narrowest_text && (widest == columns_.size() || widths[c] > widths[widest])) widest = c;
    if (widest == columns_.size()) break;
    --widths[widest];
  }
  if (total_of(widths) <= width) return widths;
  // The table has several parts anyway, so that text is as wide as a part allows.
  const Widths natural = natural_widths(titles, true);
  const std::size_t keys = std::min(keys_, widths.size()),
                    taken = total_of(Widths(widths.begin(), widths.begin() + std::ptrdiff_t(keys))) + column_gap;
  for (std::size_t c = keys; c < widths.size(); ++c)
    if (!columns_[c].right && width > taken) widths[c] = std::max(widths[c], std::min(natural[c], width - taken));
  return widths;
}

// Columns of each part of the table: one part if all fit, otherwise several that begin with the key columns.
std::vector<std::vector<std::size_t>> Table::parts_within(std::size_t width, const Widths& widths) const {
  std::vector<std::size_t> keys;
  for (std::size_t c = 0; c < std::min(keys_, columns_.size()); ++c) keys.push_back(c);
  std::vector<std::vector<std::size_t>> parts{keys};
  std::size_t taken = 0;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (c >= keys.size()) {
      if (taken + column_gap + widths[c] > width && parts.back().size() > keys.size()) {
        parts.push_back(keys);
        taken = total_of(Widths(widths.begin(), widths.begin() + std::ptrdiff_t(keys.size())));
      }
      parts.back().push_back(c);
    }
    taken += (c ? column_gap : 0) + widths[c];
  }
  return parts;
}

std::string Table::text_of(const std::vector<std::size_t>& shown, const Widths& widths, bool titles) const {
  Widths part;
  std::vector<bool> right;
  std::vector<std::vector<std::string>> names;
  for (const std::size_t c : shown) {
    part.push_back(widths[c]), right.push_back(columns_[c].right);
    names.push_back(broken_lines(columns_[c].title, std::max<std::size_t>(widths[c], 1)));
  }
  std::string text = titles ? row_lines(names, right, part) : "";
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    if (is_heading_[r]) {
      text += '\n' + rows_[r][0] + '\n';
      continue;
    }
    std::vector<std::vector<std::string>> cells;
    for (const std::size_t c : shown)
      cells.push_back(c == 0 ? hanging(rows_[r][c], widths[c]) : broken_lines(rows_[r][c], std::max<std::size_t>(widths[c], 1)));
    text += row_lines(cells, right, part);
  }
  return text;
}

std::string Table::str(bool titles, std::size_t width) const {
  const Widths widths = widths_within(width, titles);
  std::string text;
  for (const auto& part : parts_within(width, widths)) text += (text.empty() ? "" : "\n") + text_of(part, widths, titles);
  return text;
}

std::string Table::str(bool titles) const { return str(titles, std::size_t(output_width(stdout))); }

}  // namespace gyr
