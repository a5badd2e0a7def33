// SPDX-License-Identifier: BSD-3-Clause
// What a safetensors file says of itself. Bytes 0 to 7: length M of the header, little endian; then M bytes of JSON,
//   {"__metadata__": {"format": "pt"}, NAME: {"dtype": "BF16", "shape": [4, 2], "data_offsets": [0, 16]}, ...}
// and the data, which the tensors cover without hole or overlap. Offsets count from the end of the header; row-major, little endian.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/tensor.hpp"

namespace gyr::safetensors {

// Every type the format has. Weights are of the last four.
enum class Type { boolean, f8_e5m2, f8_e4m3, u8, i8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64 };
std::string_view name_of(Type);  // as the format spells it: "BOOL", "BF16"
Index size_of(Type);             // bytes
bool is_weight_type(Type);

struct Tensor {
  std::string name;
  Type type = Type::f32;
  Shape shape;               // {} for a scalar; an extent may be 0
  Index begin = 0, end = 0;  // bytes of the data area
};

struct Header {
  std::vector<Tensor> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
  Index data_begin = 0;  // byte of the file where the data area begins
};

constexpr Index length_bytes = 8;

// The header's length from the first 8 bytes of a file of `file_bytes`. Exit::data unless it fits the file and 100 MB.
Index header_length(std::string_view first, Index file_bytes, const std::string& origin);
// The header itself, of which nothing is left to doubt: Exit::data naming `origin` and the tensor where names repeat, numbers are no
// unsigned ones, types are unknown, sizes overflow, or tensors and data area do not match to the byte.
Header parse_header(std::string_view json, Index file_bytes, const std::string& origin);
// Both, of a file in memory.
Header read_header(std::string_view file, const std::string& origin);

// The beginning of a file of these tensors: length and JSON, padded with spaces so that data begins at a multiple of 8. Sets their
// places, one after the other, and `data_begin`.
std::string write_header(Header&);

}  // namespace gyr::safetensors
