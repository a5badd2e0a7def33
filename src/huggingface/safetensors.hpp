// SPDX-License-Identifier: BSD-3-Clause
// Reads boxes of tensors from safetensors files, of which only the requested bytes are read, and writes such files in
// pieces.
#pragma once

#include <filesystem>

#include "kernels/base/box.hpp"
#include "src/base/input_file.hpp"
#include "src/base/output_file.hpp"
#include "src/huggingface/safetensors_header.hpp"

namespace gyr::safetensors {

class Reader {
 public:
  // Reads and checks the header. Throws Exit::missing if there is no such file, and Exit::data if it is not a complete
  // safetensors file.
  explicit Reader(const std::filesystem::path& file);

  const std::string& name() const { return name_; }  // path of the file
  const std::vector<Tensor>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  // Copies the elements of `box` of a tensor, in their stored type, to the equally large box `there` of the row-major
  // array at `data`, which has the shape `array`. Throws Exit::io if the file cannot be read.
  void read(const Tensor&, const Box& box, void* data, const Shape& array, const Box& there) const;
  Index bytes_read() const { return bytes_read_; }  // bytes of tensor data read so far

 private:
  void read_bytes(Index offset, Index count, void* to) const;

  InputFile file_;
  std::string name_;
  Header header_;
  mutable Index bytes_read_ = 0;
};

class Writer {
 public:
  // The file appears under its name at commit(). Tensors are stored in the given order. __metadata__ is {"format":
  // "pt"}; some versions of transformers reject files without it.
  Writer(const std::filesystem::path& file, std::vector<Tensor> tensors);

  void write(const void* data, Index bytes);  // appends tensor data, in the order of the tensors, in pieces of any size
  void commit();                              // throws Exit::internal unless every byte was written

  const std::vector<Tensor>& tensors() const { return header_.tensors; }

 private:
  OutputFile output_;
  Header header_;
  Index end_ = 0;  // end of the last tensor in the data area, in bytes
};

// Order of tensors in a file: by decreasing element size, then by name. Every element is then aligned to its size.
// Other writers of safetensors use the same order.
bool precedes_in_file(const Tensor&, const Tensor&);

}  // namespace gyr::safetensors
