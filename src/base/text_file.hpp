// SPDX-License-Identifier: BSD-3-Clause
// A text file that is read from front to back, plain or compressed. Offsets count bytes of the text. A compressed one is decompressed as far as it is
// asked for, and what is behind the reader is forgotten, so that memory does not grow with the file.
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
  // Errors of MappedFile, here and, of a compressed file, those of Decompressor while it is read.
  explicit TextFile(const std::filesystem::path& path) : file_(path), decompressor_(Decompressor::of(file_.text(), path)) {}

  const std::filesystem::path& path() const { return file_.path(); }
  bool compressed() const { return decompressor_ != nullptr; }
  std::int64_t stored() const { return std::int64_t(file_.size()); }                             // bytes of the file
  std::int64_t consumed() const { return compressed() ? decompressor_->consumed() : stored(); }  // of them read, at least
  std::int64_t known() const {
    return compressed() ? first_ + std::int64_t(window_.size()) : std::int64_t(file_.size());
  }  // bytes of text read so far

  bool reaches(std::int64_t offset);  // whether there is a byte at `offset`
  // From `from` up to `to`, which the text reaches, or where it ends. Until the next call.
  std::string_view view(std::int64_t from, std::int64_t to);
  char at(std::int64_t offset) { return view(offset, offset + 1)[0]; }
  std::int64_t newline(std::int64_t from);                  // the first at or behind `from`; -1: none
  std::int64_t newline_before(std::int64_t offset) const;   // the last before `offset`; -1: none that is not forgotten
  std::int64_t newlines_before(std::int64_t offset) const;  // how many, of the whole text
  void forget(std::int64_t before);                         // what lies before is not asked for again, but by newlines_before

 private:
  std::string_view window() const { return compressed() ? std::string_view(window_) : file_.text(); }

  MappedFile file_;
  std::unique_ptr<Decompressor> decompressor_;
  std::string window_;  // text from first_ on
  std::int64_t first_ = 0, forgotten_newlines_ = 0;
  bool at_end_ = false;
};

}  // namespace gyr
