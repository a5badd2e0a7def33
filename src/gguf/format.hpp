// SPDX-License-Identifier: BSD-3-Clause
// Files of GGUF, version 3, the format of llama.cpp: a header of key-values and of what each tensor is, then the tensors, all little-endian. The
// layout is that of ggml's docs/gguf.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "kernels/base/box.hpp"
#include "src/base/output_file.hpp"

namespace gyr::gguf {

inline constexpr Index alignment = 32;  // bytes that a tensor begins at a multiple of

// By ggml's number of them. q8_0: blocks of 32 numbers, see block.hpp.
enum class Type : std::uint32_t { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };
inline constexpr Index block_size = 32, block_bytes = 34;  // of q8_0
Index bytes_of(Type, Index numbers);                       // of whole blocks

struct Tensor {
  std::string name;
  Type type;
  Shape shape;  // the last dimension varies fastest; the file has them in the other order
  Index bytes() const { return bytes_of(type, elements(shape)); }
};

using Value = std::variant<std::uint32_t, float, bool, std::string, std::vector<std::uint32_t>, std::vector<std::int32_t>, std::vector<bool>,
                           std::vector<std::string>>;

struct KeyValue {
  std::string key;
  Value value;
};

class Writer {
 public:
  // The file gets its name at commit(). Tensors lie in the order given. Exit::missing, Exit::io.
  Writer(const std::filesystem::path& file, const std::vector<KeyValue>&, std::vector<Tensor>);

  Index bytes() const { return data_begin_ + data_bytes_; }  // of the whole file
  void write(std::string_view data);                         // the tensors' data in their order, in pieces that do not cross from one to the next
  void commit();                                             // Exit::internal unless every byte was written

 private:
  OutputFile output_;
  std::vector<Tensor> tensors_;
  std::size_t at_ = 0;  // the tensor that is being written, and how much of it has been
  Index written_ = 0, data_begin_ = 0, data_bytes_ = 0;
};

}  // namespace gyr::gguf
