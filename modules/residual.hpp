// SPDX-License-Identifier: BSD-3-Clause
// y = x + sum of branches(norm(x)). The branches of one residual share the norm and the sum over the tensor axis, one each way.
#pragma once

#include "modules/norm.hpp"

namespace gyr {

template <class T>
class Residual {
 public:
  Residual(const ModelConfig& c, const std::string& norm_name, Parameters& parameters) : norm_(c, norm_name, parameters) {}
  void add(std::unique_ptr<Branch<T>> branch) { branches_.push_back(std::move(branch)); }

  // Returns y, a tensor of the frame.
  Tensor2<T> forward(Pass& a, Frame&, Tensor2<const T> x);
  // dx holds the gradient of y on entry and that of x on return.
  void backward(Pass& a, Frame&, Tensor2<T> dx, MatrixGradients);
  // What that has left.
  void backward_weights(Pass& a, Frame&);

 private:
  struct Keys {
    static constexpr Key<Tensor2<T>> output{"output", Effort::sum, Phase::input_gradients}, gradient{"gradient of output, all rows"};
  };

  Norm<T> norm_;
  std::vector<std::unique_ptr<Branch<T>>> branches_;
};

}  // namespace gyr
