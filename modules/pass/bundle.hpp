// SPDX-License-Identifier: BSD-3-Clause
// What one layer hands to the next, and a stage of the pipeline to the next.
#pragma once

#include "kernels/ops/any_tensor.hpp"

namespace gyr {

// Tensors that travel through a model, or their gradients; those that a model does not have are absent.
struct Bundle {
  AnyTensor2 x = {};       // the residual stream (R,D)
  AnyTensor2 source = {};  // that of the source which an encoder reads, and behind the encoder what it made of it
  AnyTensor2 bias = {};    // what scores are added by distance (buckets, heads of this rank)

  enum class Part { stream, source, bias };
  // What a transfer of a part is for, or of its gradient.
  static const char* purpose(Part part, bool gradient) {
    constexpr const char* purposes[][2] = {{"stream: rows x hidden", "gradient of the stream: rows x hidden"},
                                           {"source: rows x hidden", "gradient of the source: rows x hidden"},
                                           {"bias of distances: buckets x heads", "gradient of the bias of distances: buckets x heads"}};
    return purposes[std::size_t(part)][gradient];
  }
  // body(part, tensor) for each tensor of it, in an order that is the same everywhere.
  template <class Body>
  void each(Body&& body) const {
    body(Part::stream, x);
    if (source.rows > 0) body(Part::source, source);
    if (bias.rows > 0) body(Part::bias, bias);
  }
};

}  // namespace gyr
