// SPDX-License-Identifier: BSD-3-Clause
// Relative position bias (T5): a table that all attention layers of an encoder, or of a decoder, share. It is passed on
// to them with the residual stream.
#pragma once

#include "kernels/ops/attention.hpp"
#include "kernels/ops/distance_bias.hpp"
#include "modules/model/layer.hpp"

namespace gyr {

class RelativeBias {
 public:
  // Weight NAME.weight (buckets, heads), sharded over the tensor-parallel ranks by heads.
  RelativeBias(const ModelConfig&, const std::string& name, Parameters&);
  // This rank's columns of the table, a tensor of the frame.
  AnyTensor2 forward(Pass&, Frame&) const;
  // Adds the gradient that the attention layers have accumulated to that of the weight.
  void backward(Pass&, const AnyTensor2& gradient) const;

 private:
  static constexpr Key<AnyTensor2> table{"relative position bias"};
  Parameter& weight_;
};

// True if the model has relative position biases.
inline bool has_relative_bias(const ModelConfig& c) { return c.attention.relative_bias.buckets > 0; }

// Bias for every query-key distance that can occur in the pass, in scratch until the end of the scope; in a backward
// with a gradient, initialised to zero. Empty if the pass has no table.
template <class A>
DistanceBias distance_bias_of(Pass&, const RelativeBiasConfig&, bool backward);
// Adds the gradient of these biases to the gradient of the table.
template <class A>
void add_to_table(Pass&, const RelativeBiasConfig&, const DistanceBias&);

}  // namespace gyr
