// SPDX-License-Identifier: BSD-3-Clause
// Tensors that one layer passes to the next, and one pipeline stage to the next.
#pragma once

#include "kernels/ops/any_tensor.hpp"

namespace gyr {

// Activations that travel through a model, or their gradients. Tensors that the model does not have are empty.
struct Bundle {
  AnyTensor2 x = {};       // residual stream: R rows (tokens) of D channels
  AnyTensor2 source = {};  // residual stream of the encoder; after the encoder, its output
  AnyTensor2 bias = {};    // relative position bias, added to attention scores (buckets, heads of this rank)

  enum class Part { stream, source, bias };
  // Purpose of a transfer of this part, or of its gradient, as traffic reports name it.
  static const char* purpose(Part part, bool gradient) {
    constexpr const char* purposes[][2] = {{"residual stream: rows x hidden", "gradient of the residual stream: rows x hidden"},
                                           {"encoder stream: rows x hidden", "gradient of the encoder stream: rows x hidden"},
                                           {"relative position bias: buckets x heads", "gradient of the relative position bias: buckets x heads"}};
    return purposes[std::size_t(part)][gradient];
  }
  // Calls body(part, tensor) for each tensor that is present, in the same order on every rank.
  template <class Body>
  void each(Body&& body) const {
    body(Part::stream, x);
    if (source.rows > 0) body(Part::source, source);
    if (bias.rows > 0) body(Part::bias, bias);
  }
};

}  // namespace gyr
