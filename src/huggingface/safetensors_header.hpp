// SPDX-License-Identifier: BSD-3-Clause
// Header of a safetensors file. Bytes 0 to 7 hold its length M, little endian. Then follow M bytes of JSON,
//   {"__metadata__": {"format": "pt"}, NAME: {"dtype": "BF16", "shape": [4, 2], "data_offsets": [0, 16]}, ...}
// and the data area, which the tensors cover without gap or overlap. Offsets count from the end of the header. Data are row-major and little endian.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/tensor.hpp"

namespace gyr::safetensors {

// All element types of the format. Weights have one of the last four.
enum class Type { boolean, f8_e5m2, f8_e4m3, u8, i8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64 };
std::string_view name_of(Type);  // name in the format, e.g. "BOOL", "BF16"
Index size_of(Type);             // bytes of one element
bool is_weight_type(Type);

struct Tensor {
  std::string name;
  Type type = Type::f32;
  Shape shape;               // {} for a scalar; an extent may be 0
  Index begin = 0, end = 0;  // byte range in the data area
};

struct Header {
  std::vector<Tensor> tensors;  // sorted by position of their data
  std::map<std::string, std::string> metadata;
  Index data_begin = 0;  // byte of the file where the data area begins
};

constexpr Index length_bytes = 8;

// Returns the length of the header, from the first 8 bytes of a file of `file_bytes`. Throws Exit::data unless it fits
// into the file and is at most 100 MB.
Index header_length(std::string_view first, Index file_bytes, const std::string& origin);
// Parses the JSON of the header. Throws Exit::data, naming `origin` and the tensor, if names repeat, numbers are
// negative or fractional, types are unknown, sizes overflow, or the tensors do not cover the data area exactly.
Header parse_header(std::string_view json, Index file_bytes, const std::string& origin);
// Reads length and header of a file in memory.
Header read_header(std::string_view file, const std::string& origin);

// Returns the first bytes of a file with these tensors: length and JSON, padded with spaces so that the data area
// begins at a multiple of 8. Sets the tensors' byte ranges, in the given order, and `data_begin`.
std::string write_header(Header&);

}  // namespace gyr::safetensors
