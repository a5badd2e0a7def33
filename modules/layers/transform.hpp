// SPDX-License-Identifier: BSD-3-Clause
// Transform before an output matrix: linear layer, activation of the MLP and norm, y = norm(a(h w' + b)), with weights
// NAME.dense and NAME.norm (prediction head transform of BERT). It is not sharded: every tensor-parallel rank computes
// it for its rows of the residual stream.
#pragma once

#include "modules/layers/dense.hpp"
#include "modules/layers/norm.hpp"

namespace gyr {

template <class T>
class Transform {
 public:
  Transform(const ModelConfig& c, const std::string& name, bool biased, Parameters& parameters)
      : dense_(c, name + ".dense", c.mlp.activation, parameters, biased), norm_(c, name + ".norm", parameters) {}

  Tensor2<T> forward(Pass& a, Frame& frame, Tensor2<T> h) { return norm_.forward(a, frame.nested(0, "norm"), dense_.forward(a, frame, h)); }
  void backward(Pass& a, Frame& frame, Tensor2<const T> dy, Tensor2<T> dh) {
    norm_.backward(a, frame.nested(0), dy, Add::no, dh);
    dense_.backward(a, frame, dh, dh);
  }

 private:
  Dense<T> dense_;
  Norm<T> norm_;
};

}  // namespace gyr
