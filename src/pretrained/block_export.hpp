// SPDX-License-Identifier: BSD-3-Clause
// Weights on their way into blocks of 4 bits (src/huggingface/mxfp4.hpp), where a folder that is followed has them so: a block keeps the scale that
// it has there where that says its numbers exactly, so that weights which came from there have the same bytes again.
#pragma once

#include "src/base/note.hpp"
#include "src/huggingface/model_folder.hpp"

namespace gyr {

// A tensor of numbers becomes two of a file.
enum class BlockPart { none, codes, scales };

class BlockExport {
 public:
  explicit BlockExport(const std::filesystem::path& like) : like_(like) {}

  // What a part of the tensor `blocks` (NAME_blocks) of these numbers is in the file. Exit::config where the folder's has another shape.
  safetensors::Tensor part_of(const TensorReader& numbers, const std::string& blocks, BlockPart) const;
  // Bytes of some rows of that part, whose numbers are `data`. Exit::data where one is not finite.
  std::string packed(const TensorReader& numbers, const safetensors::Tensor& part, BlockPart, const Box& rows, const std::byte* data);
  // How many blocks were rounded, and how, in one sentence; nothing where none was.
  void log_blocks(const Note&) const;

 private:
  ModelFolder like_;
  Index blocks_ = 0, rounded_ = 0;
};

}  // namespace gyr
