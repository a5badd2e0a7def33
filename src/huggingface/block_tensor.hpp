// SPDX-License-Identifier: BSD-3-Clause
// Reads MXFP4 tensors (4-bit elements in blocks of 32, see mxfp4.hpp) as bf16. A file stores two U8 tensors:
// NAME_blocks (..., G, 16) and NAME_scales (..., G). Together they hold elements of the shape (..., 32 G).
#pragma once

#include <string>
#include <string_view>

#include "src/checkpoint/weight_source.hpp"
#include "src/huggingface/safetensors.hpp"

namespace gyr {

inline constexpr std::string_view blocks_end = "_blocks", scales_end = "_scales";

// True for a U8 tensor whose name ends in _blocks.
bool is_blocks(const safetensors::Tensor&);
std::string scales_of(std::string blocks);  // returns NAME_scales for NAME_blocks

// Opens the two tensors as one bf16 tensor. Readers and tensors must outlive the result. Throws Exit::data if the types
// or shapes of blocks and scales do not match. Reading throws Exit::data, naming the block, if a scale is NaN or an
// element overflows bf16.
TensorReader open_blocks(const safetensors::Reader& of_blocks, const safetensors::Tensor& blocks, const safetensors::Reader& of_scales,
                         const safetensors::Tensor& scales);

}  // namespace gyr
