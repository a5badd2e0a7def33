// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/terminal.hpp"

#include <sys/ioctl.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

namespace gyr {

int output_width(std::FILE* out, int of_files) {
  constexpr int least = 20;
  const char* const set = std::getenv("COLUMNS");
  const std::string_view text = set ? set : "";
  int columns = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
  if (error == std::errc() && end == text.data() + text.size() && columns >= least) return columns;
  winsize size{};
  return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col >= least ? size.ws_col : of_files;
}

std::size_t shown_width(const std::string& text) {
  return std::size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::vector<std::string> broken_lines(const std::string& text, std::size_t width) {
  if (shown_width(text) <= width) return {text};
  std::vector<std::string> lines(1);
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = std::min(text.find(' ', begin), text.size());
    std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (!lines.back().empty() && shown_width(lines.back()) + 1 + shown_width(word) > width) lines.emplace_back();
    for (; shown_width(word) > width; lines.emplace_back()) {
      std::size_t break_at = width;
      while (shown_width(word.substr(0, break_at)) < width || (word[break_at] & 0xc0) == 0x80) ++break_at;
      lines.back() = word.substr(0, break_at);
      word.erase(0, break_at);
    }
    lines.back().append(lines.back().empty() ? "" : " ").append(word);
  }
  return lines;
}

namespace {

// Column of the text after "  NAME  "; that of the first word if the line is not such an entry.
std::size_t text_column(const std::string& line) {
  const std::size_t first = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t gap = first > 0 ? line.find("  ", first) : line.npos;
  return gap == line.npos ? first : std::min(line.find_first_not_of(' ', gap), line.size());
}

}  // namespace

std::string with_hanging_lines(const std::string& text, std::size_t width) {
  std::string broken;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const std::size_t column = text_column(line);
    std::string lead = line.substr(0, column);
    for (const std::string& part : broken_lines(line.substr(column), std::max<std::size_t>(width, column + 20) - column)) {
      broken += lead + part + '\n';
      lead.assign(column, ' ');
    }
    begin = end + 1;
  }
  if (!text.ends_with('\n') && !broken.empty()) broken.pop_back();
  return broken;
}

std::string prose(const std::string& text) {
  const auto width = std::size_t(output_width(stdout, std::numeric_limits<int>::max()));
  std::string broken;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    for (const std::string& line : broken_lines(text.substr(begin, end - begin), width)) broken += line + '\n';
    begin = end + 1;
  }
  if (!text.ends_with('\n') && !broken.empty()) broken.pop_back();
  return broken;
}

std::string shell_word(const std::string& word) {
  if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,=:/+-@%") == word.npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace gyr
