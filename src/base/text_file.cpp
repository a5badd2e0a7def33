// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/text_file.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"

namespace gyr {

bool TextFile::reaches(std::int64_t offset) {
  while (known() <= offset && compressed() && !at_end_) {
    require(known() - first_ <= most_window_, Exit::data,
            "{}: its text has no place to divide it, such as the end of a line, in the {} bytes after byte {}; shorten its lines, or decompress the "
            "file, which is then read without a copy in memory",
            path().string(), known() - first_, first_);
    at_end_ = !decompressor_->append_to(window_);
  }
  return offset < known();
}

std::string_view TextFile::view(std::int64_t from, std::int64_t to) {
  if (to > from) reaches(to - 1);
  return window().substr(std::size_t(from - first_), std::size_t(to - from));
}

std::int64_t TextFile::newline(std::int64_t from) {
  for (std::int64_t at = from; reaches(at); at = known()) {
    const std::size_t found = window().find('\n', std::size_t(at - first_));
    if (found != std::string_view::npos) return first_ + std::int64_t(found);
  }
  return -1;
}

std::int64_t TextFile::newline_before(std::int64_t offset) const {
  if (offset <= first_) return -1;
  const std::size_t found = window().rfind('\n', std::size_t(offset - first_ - 1));
  return found == std::string_view::npos ? -1 : first_ + std::int64_t(found);
}

std::int64_t TextFile::newlines_before(std::int64_t offset) const {
  const std::string_view before = window().substr(0, std::size_t(offset - first_));
  return forgotten_newlines_ + std::count(before.begin(), before.end(), '\n');
}

// Drops text only in large pieces, because the rest has to be moved.
void TextFile::forget(std::int64_t before) {
  constexpr std::int64_t piece = std::int64_t(1) << 20;
  if (!compressed() || before - first_ < piece) return;
  forgotten_newlines_ = newlines_before(before);
  window_.erase(0, std::size_t(before - first_));
  first_ = before;
}

}  // namespace gyr
