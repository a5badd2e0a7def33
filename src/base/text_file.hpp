// SPDX-License-Identifier: BSD-3-Clause
// A text file that is read from front to back, plain or compressed. Offsets count bytes of the text. Compressed text is
// decompressed on demand, and text that is no longer needed can be dropped, so that memory does not grow with the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "src/base/decompressor.hpp"
#include "src/base/mapped_file.hpp"

namespace gyr {

class TextFile {
 public:
  // Throws the errors of MappedFile; while a compressed file is read, also those of Decompressor, and Exit::data if more
  // than `most_window` bytes of its text would have to be in memory at once, because nothing has been dropped.
  explicit TextFile(const std::filesystem::path& path, std::int64_t most_window)
      : file_(path), decompressor_(Decompressor::of(file_.text(), path)), most_window_(most_window) {}

  const std::filesystem::path& path() const { return file_.path(); }
  bool compressed() const { return decompressor_ != nullptr; }
  std::int64_t stored() const { return std::int64_t(file_.size()); }                             // bytes of the file on disk
  std::int64_t consumed() const { return compressed() ? decompressor_->consumed() : stored(); }  // bytes of the file on disk that were read, at least
  std::int64_t known() const {
    return compressed() ? first_ + std::int64_t(window_.size()) : std::int64_t(file_.size());
  }  // bytes of text decompressed so far

  bool reaches(std::int64_t offset);  // true if the text has a byte at `offset`
  // Text from `from` up to `to`, or up to its end if that comes first. Valid until the next call.
  std::string_view view(std::int64_t from, std::int64_t to);
  char at(std::int64_t offset) { return view(offset, offset + 1)[0]; }
  std::int64_t newline(std::int64_t from);                  // first newline at or after `from`; -1: none
  std::int64_t newline_before(std::int64_t offset) const;   // last newline before `offset`; -1: none in the text that is still in memory
  std::int64_t newlines_before(std::int64_t offset) const;  // number of newlines before `offset` in the full text
  void forget(std::int64_t before);  // lets the text before an offset be dropped (compressed files only); newlines_before still counts it

 private:
  std::string_view window() const { return compressed() ? std::string_view(window_) : file_.text(); }

  MappedFile file_;
  std::unique_ptr<Decompressor> decompressor_;
  std::int64_t most_window_;
  std::string window_;                               // decompressed text in memory, from offset first_ on
  std::int64_t first_ = 0, forgotten_newlines_ = 0;  // byte offset of window_ in the text; number of newlines before it
  bool at_end_ = false;
};

}  // namespace gyr
