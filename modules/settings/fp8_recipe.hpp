// SPDX-License-Identifier: BSD-3-Clause
// Recipes of FP8 GEMMs (deck key train.fp8): the blocks of an operand that have one scale. modules/fp8.md defines them.
#pragma once

namespace gyr {

// tensor: one scale per operand, gradients of outputs in E5M2. blocks: 1 x 128 elements of activations and gradients, 128 x 128 of weights.
// mxfp8: 32 elements along the summed dimension. none: GEMMs in the type of the model.
enum class Fp8Recipe { none, tensor, blocks, mxfp8 };

}  // namespace gyr
