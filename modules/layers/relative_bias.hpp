// SPDX-License-Identifier: BSD-3-Clause
// The table of relative positions that all attention layers of an encoder, or of a decoder, share: it travels with the stream to where they are.
#pragma once

#include "kernels/ops/attention.hpp"
#include "kernels/ops/distance_bias.hpp"
#include "modules/model/layer.hpp"

namespace gyr {

class RelativeBias {
 public:
  // Weight NAME.weight (buckets, heads), sharded over the tensor axis by heads.
  RelativeBias(const ModelConfig&, const std::string& name, Parameters&);
  // The rank's table, a tensor of the frame.
  AnyTensor2 forward(Pass&, Frame&) const;
  // Adds up the gradient that layers have left.
  void backward(Pass&, const AnyTensor2& gradient) const;

 private:
  static constexpr Key<AnyTensor2> table{"bias of distances"};
  Parameter& weight_;
};

// Whether a model has such a table.
inline bool has_relative_bias(const ModelConfig& c) { return c.attention.relative_bias.buckets > 0; }

// What the pass's table makes of all distances that may occur in it, in scratch until the end of the scope; in a backward with room for the gradient,
// zero. None where the pass has no table.
template <class A>
DistanceBias distance_bias_of(Pass&, const RelativeBiasConfig&, bool backward);
// Adds that gradient to the table's.
template <class A>
void add_to_table(Pass&, const RelativeBiasConfig&, const DistanceBias&);

}  // namespace gyr
