// SPDX-License-Identifier: BSD-3-Clause
// A layer, the MLP's activation and a norm in front of an output matrix, y = norm(a(h w' + b)): NAME.dense and NAME.norm. It is not sharded: every
// rank of the tensor axis has it for the rows of the stream that it keeps.
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
