// SPDX-License-Identifier: BSD-3-Clause
// Pads encoder inputs of different lengths within one micro-batch.
#pragma once

#include "src/engine/model/chunk.hpp"

namespace gyr {

// Appends the encoder input of the next sequence, padded to the length of the others.
void append_source(std::span<const Token> source, EncoderInput& all);
// Encoder inputs of `batch` sequences with padding up to `length` rows, such as the capacity that memory is planned for.
EncoderInput padded(const EncoderInput&, Index batch, Index length, const std::vector<NamedField>&);

}  // namespace gyr
