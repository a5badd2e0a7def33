// SPDX-License-Identifier: BSD-3-Clause
// Files of safetensors: read in boxes, of which only the bytes asked for leave the disk, and written in pieces.
#pragma once

#include <filesystem>

#include "kernels/base/box.hpp"
#include "src/base/output_file.hpp"
#include "src/huggingface/safetensors_header.hpp"

namespace gyr::safetensors {

class Reader {
 public:
  // Reads and checks the header. Exit::missing where there is no such file, Exit::data where it is not a whole safetensors file.
  explicit Reader(const std::filesystem::path& file);
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) = delete;
  ~Reader();

  const std::string& name() const { return name_; }  // of the file
  const std::vector<Tensor>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  // The elements of `box` of a tensor of this file become those of the equally large `there` in the row-major `array` at `data`, as they
  // are stored. Exit::io where the file cannot be read.
  void read(const Tensor&, const Box& box, void* data, const Shape& array, const Box& there) const;
  Index bytes_read() const { return bytes_read_; }  // of data, so far

 private:
  void read_bytes(Index offset, Index count, void* to) const;

  std::string name_;
  int descriptor_ = -1;
  Header header_;
  mutable Index bytes_read_ = 0;
};

class Writer {
 public:
  // The file gets its name at commit(). Tensors lie in the order given; "__metadata__" says {"format": "pt"}, without which some versions
  // of transformers refuse a file.
  Writer(const std::filesystem::path& file, std::vector<Tensor> tensors);

  void write(const void* data, Index bytes);  // the tensors' data in their order, in pieces of any size
  void commit();                              // Exit::internal unless every byte was written

  const std::vector<Tensor>& tensors() const { return header_.tensors; }

 private:
  OutputFile output_;
  Header header_;
  Index end_ = 0;  // of the data
};

// By falling size of the elements, then by name, so that every element lies at a multiple of its size: the order of other writers.
bool precedes_in_file(const Tensor&, const Tensor&);

}  // namespace gyr::safetensors
