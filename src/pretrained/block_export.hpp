// SPDX-License-Identifier: BSD-3-Clause
// Exports weights as MXFP4 blocks of 4 bits (src/huggingface/mxfp4.hpp) if the folder given by --like stores them so. A
// block keeps the scale that it has in that folder if its values are exact with it. Unchanged weights therefore get
// identical bytes.
#pragma once

#include "src/base/note.hpp"
#include "src/huggingface/model_folder.hpp"

namespace gyr {

// Tensors in a file that store one tensor of values: codes and scales; none: the tensor is not stored in blocks.
enum class BlockPart { none, codes, scales };

class BlockExport {
 public:
  explicit BlockExport(const std::filesystem::path& like) : like_(like) {}
  // Description of one part of the tensor `blocks` (NAME_blocks) in the file. Exit::config if its shape in the --like
  // folder differs.
  safetensors::Tensor part_of(const TensorReader& values, const std::string& blocks, BlockPart) const;
  // Encodes the values `data` of some rows and returns the bytes of that part. Exit::data if a value is not finite.
  std::string packed(const TensorReader& values, const safetensors::Tensor& part, BlockPart, const Box& rows, const std::byte* data);
  // Reports the number of blocks that were rounded, and how, in one sentence. Reports nothing if there are none.
  void log_blocks(const Note&) const;

 private:
  ModelFolder like_;
  Index blocks_ = 0, rounded_ = 0;
};

}  // namespace gyr
