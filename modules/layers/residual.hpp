// SPDX-License-Identifier: BSD-3-Clause
// By model.norm_placement
//   before   y = x + sum of branches(norm(x))
//   after    y = norm(x + sum of branches(x))
//   both     y = x + norm_2(sum of branches(norm(x)))
// and y = x + sum of branches(x) where a norm behind the embedding stands in place of the first. What is added to x is dropped out first
// (model.dropout.residual).
// The branches of one residual share the norms and the sum over the tensor axis, one each way.
#pragma once

#include <optional>

#include "modules/layers/norm.hpp"

namespace gyr {

inline constexpr const char* first_norm_name = "model.layers.0.input_layernorm";

template <class T>
class Residual {
 public:
  // second_norm: the name of what is behind the branches' sum, if anything is.
  Residual(const ModelConfig& c, const std::string& norm, const std::string& second_norm, Parameters& parameters)
      : after_(c.norm_placement == NormPlacement::after), name_(norm), dropped_(c.dropout.residual) {
    if (!c.embed_norm || norm != first_norm_name) norm_.emplace(c, norm, parameters);
    if (c.norm_placement == NormPlacement::both) norm_of_sum_.emplace(c, second_norm, parameters);
  }
  void add(std::unique_ptr<Branch<T>> branch) { branches_.push_back(std::move(branch)); }

  // Returns y, a tensor of the frame.
  Tensor2<T> forward(Pass& a, Frame&, Tensor2<T> x);
  // dx holds the gradient of y on entry and that of x on return.
  void backward(Pass& a, Frame&, Tensor2<T> dx, MatrixGradients);
  // What that has left.
  void backward_weights(Pass& a, Frame&);

 private:
  struct Keys {
    static constexpr Key<Tensor2<T>> input{"input"}, output{"output", RecomputeCost::sum, Phase::input_gradients},
        gradient{"gradient of output, all rows"};
  };
  // x + sum of branches(h), a tensor of the frame; without x where the sum has a norm of its own.
  Tensor2<T> add_branches(Pass& a, Frame&, Tensor2<T> h, Tensor2<const T> x);
  Tensor2<T> add_normed(Pass& a, Frame&, Tensor2<T> sum, Tensor2<const T> x);
  // y = x + what dropout leaves of y
  void join(const Pass& a, Tensor2<const T> x, Tensor2<T> y) const;
  // Of the sum of branches, from that of y, which stays what it is where it is also that of x. In scratch, or dy itself.
  Tensor2<T> gradient_of_sum(Pass& a, Frame&, Tensor2<T> dy, Tensor2<T> spare);
  Frame& frame_of_sum(Frame& frame) const { return frame.nested(int(branches_.size()), "norm of the sum"); }
  Dropout dropout(const Pass& a) const { return a.dropout(name_, dropped_); }
  // What branches read.
  Tensor2<T> read_by_branches(Frame& frame) const { return reads_stream() ? frame.get(Keys::input) : norm_->normed_rows(frame); }
  bool reads_stream() const { return after_ || !norm_; }

  std::optional<Norm<T>> norm_, norm_of_sum_;
  bool after_;
  std::string name_;  // that dropout is drawn by
  double dropped_;
  std::vector<std::unique_ptr<Branch<T>>> branches_;
};

}  // namespace gyr
