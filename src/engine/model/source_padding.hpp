// SPDX-License-Identifier: BSD-3-Clause
// Encoder inputs of one micro-batch: pads those of different lengths, and arranges the neighbours of its texts.
#pragma once

#include "src/engine/model/chunk.hpp"

namespace gyr {

// Appends the encoder input of the next sequence, padded to the length of the others.
void append_source(std::span<const Token> source, EncoderInput& all);
// Encoder inputs of `batch` sequences with padding up to `length` rows, such as the capacity that memory is planned for.
EncoderInput padded(const EncoderInput&, Index batch, Index length, const std::vector<NamedField>&);

// Neighbours of one text, for layers R: tokens (chunks, k, r), and the length of each (chunks, k).
struct NeighboursOfText {
  std::span<const Token> tokens;
  std::span<const std::int32_t> lengths;
};
// The n-th neighbours of all chunks of all texts before the (n + 1)-th ones.
EncoderInput encoder_input_of(std::span<const NeighboursOfText>, const RetrievalConfig&);

}  // namespace gyr
