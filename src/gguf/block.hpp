// SPDX-License-Identifier: BSD-3-Clause
// Numbers as tensors of a GGUF file hold them.
#pragma once

#include <string>

#include "src/gguf/format.hpp"

namespace gyr::gguf {

// Appends `count` numbers, whole blocks of them. bf16 and f16 are rounded to nearest, ties to even. A block of q8_0 is a scale d = max|x| / 127 in
// half precision and 32 bytes q, x about d q; q = x (1 / d) with the d that is not yet rounded, to nearest, ties away from zero, as ggml's reference
// has it. Exit::data naming `object` where a number is not finite and the type has none such, or beyond half precision.
void encode(Type, const float* x, Index count, std::string& out, const std::string& object);

}  // namespace gyr::gguf
