// SPDX-License-Identifier: BSD-3-Clause
// y = x + sum of branches(norm(x)), or with model.post_norm y = norm(x + sum of branches(x)). The branches of one residual share the norm and the sum
// over the tensor axis, one each way.
#pragma once

#include "modules/norm.hpp"

namespace gyr {

template <class T>
class Residual {
 public:
  Residual(const ModelConfig& c, const std::string& norm_name, Parameters& parameters) : norm_(c, norm_name, parameters), post_norm_(c.post_norm) {}
  void add(std::unique_ptr<Branch<T>> branch) { branches_.push_back(std::move(branch)); }

  // Returns y, a tensor of the frame.
  Tensor2<T> forward(Pass& a, Frame&, Tensor2<T> x);
  // dx holds the gradient of y on entry and that of x on return.
  void backward(Pass& a, Frame&, Tensor2<T> dx, MatrixGradients);
  // What that has left.
  void backward_weights(Pass& a, Frame&);

 private:
  struct Keys {
    static constexpr Key<Tensor2<T>> input{"input"}, output{"output", Effort::sum, Phase::input_gradients}, gradient{"gradient of output, all rows"};
  };
  // x + sum of branches(h), a tensor of the frame.
  Tensor2<T> add_branches(Pass& a, Frame&, Tensor2<T> h, Tensor2<const T> x);
  // What branches read.
  Tensor2<T> read_by_branches(Frame& frame) const { return post_norm_ ? frame.get(Keys::input) : norm_.normed_rows(frame); }

  Norm<T> norm_;
  bool post_norm_;
  std::vector<std::unique_ptr<Branch<T>>> branches_;
};

}  // namespace gyr
