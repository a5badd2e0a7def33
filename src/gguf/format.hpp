// SPDX-License-Identifier: BSD-3-Clause
// Writer of GGUF files, version 3, the format of llama.cpp: a header with key-values and tensor descriptions, then the
// tensors, all little-endian (ggml's docs/gguf.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "kernels/base/box.hpp"
#include "src/base/output_file.hpp"

namespace gyr::gguf {

inline constexpr Index alignment = 32;  // tensors begin at multiples of this number of bytes

// Data types, with ggml's type codes. The last three consist of blocks (block.hpp).
enum class Type : std::uint32_t { f32 = 0, f16 = 1, bf16 = 30, q8_0 = 8, tq1_0 = 34, tq2_0 = 35 };
inline constexpr Index block_size = 32, ternary_block_size = 256;  // values per block of q8_0; of tq1_0 and tq2_0
Index values_per_block(Type);                                      // 1 for a type without blocks
Index bytes_of(Type, Index count);                                 // `count`: a multiple of the values per block
inline bool is_ternary(Type type) { return type == Type::tq1_0 || type == Type::tq2_0; }

struct Tensor {
  std::string name;
  Type type;
  Shape shape;  // last dimension varies fastest; the file stores the dimensions in reverse order
  Index bytes() const { return bytes_of(type, elements(shape)); }
};

using Value = std::variant<std::uint32_t, float, bool, std::string, std::vector<std::uint32_t>, std::vector<std::int32_t>, std::vector<float>,
                           std::vector<bool>, std::vector<std::string>>;

struct KeyValue {
  std::string key;
  Value value;
};

class Writer {
 public:
  // Writes the header to a temporary file. commit() renames it. Tensors are stored in the given order. Exit::missing,
  // Exit::io.
  Writer(const std::filesystem::path& file, const std::vector<KeyValue>&, std::vector<Tensor>);

  Index bytes() const { return data_begin_ + data_bytes_; }  // size of the complete file
  void write(std::string_view data);                         // data of the tensors in order; a piece must not span two tensors
  void commit();                                             // Exit::internal unless all tensors were written completely

 private:
  OutputFile output_;
  std::vector<Tensor> tensors_;
  std::size_t at_ = 0;  // index of the current tensor; written_: bytes of it written so far
  Index written_ = 0, data_begin_ = 0, data_bytes_ = 0;
};

}  // namespace gyr::gguf
