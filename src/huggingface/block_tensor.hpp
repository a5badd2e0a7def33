// SPDX-License-Identifier: BSD-3-Clause
// A tensor whose numbers lie in blocks of 4 bits (mxfp4.hpp), as two of a file: NAME_blocks, bytes of the shape (..., G, 16), and NAME_scales, bytes
// of the shape (..., G), are numbers of the shape (..., 32 G).
#pragma once

#include <string>
#include <string_view>

#include "src/checkpoint/weight_source.hpp"
#include "src/huggingface/safetensors.hpp"

namespace gyr {

inline constexpr std::string_view blocks_end = "_blocks", scales_end = "_scales";

// What is called NAME_blocks and has bytes.
bool is_blocks(const safetensors::Tensor&);
std::string scales_of(std::string blocks);  // NAME_scales of NAME_blocks

// The numbers, in bf16; files and tensors must stay. Exit::data where types or shapes of the two do not belong together; reading is Exit::data,
// naming the block, where a scale is not-a-number or a number is beyond those of bf16.
TensorReader open_blocks(const safetensors::Reader& of_blocks, const safetensors::Tensor& blocks, const safetensors::Reader& of_scales,
                         const safetensors::Tensor& scales);

}  // namespace gyr
