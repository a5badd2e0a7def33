// SPDX-License-Identifier: BSD-3-Clause
// Encodes values in the data types of GGUF.
#pragma once

#include <string>

#include "src/gguf/format.hpp"

namespace gyr::gguf {

// Appends `count` values, a multiple of the values per block. bf16 and f16 are rounded to nearest, ties to even. A
// q8_0 block is a scale d = max|x| / 127 in half precision and 32 bytes q, with x = d q approximately. As in ggml's
// reference, q = x (1 / d) with the unrounded d, rounded to nearest, ties away from zero. A block of
// tq1_0 or tq2_0 is a scale d = max|x| in half precision and 256 codes -1, 0 or 1, with x = d code, rounded in the same way. It is exact for
// ternary weights (kernels/ops/ternary/ternary.hpp), up to the rounding of d. Exit::data, with the name
// `object`, for values that are too large for half precision, or not finite if the type cannot represent that.
void encode(Type, const float* x, Index count, std::string& out, const std::string& object);

}  // namespace gyr::gguf
