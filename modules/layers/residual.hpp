// SPDX-License-Identifier: BSD-3-Clause
// Residual connection with its norms, by model.norm_placement:
//   before   y = x + sum of branches(norm(x))
//   after    y = norm(x + sum of branches(x))
//   both     y = x + norm_2(sum of branches(norm(x)))
//   output   y = x + norm_2(sum of branches(x))
// If a norm follows the embedding (model.embed_norm), it replaces the first norm of the first layer: y = x + sum of branches(x).
// Dropout (model.dropout.residual) applies to the term that is added to x.
// The branches of a residual share its norms and one tensor-parallel reduction each in forward and backward.
#pragma once

#include <optional>

#include "modules/layers/norm.hpp"

namespace gyr {

inline constexpr const char* first_norm_name = "model.layers.0.input_layernorm";
// True if a residual whose first norm would have this name has that norm.
inline bool has_first_norm(const ModelConfig& c, const std::string& norm) {
  return c.norm_placement != NormPlacement::output && (!c.embed_norm || norm != first_norm_name);
}

template <class T>
class Residual {
 public:
  // second_norm: name of the norm after the sum of the branches, for NormPlacement::both and output.
  Residual(const ModelConfig& c, const std::string& norm, const std::string& second_norm, Parameters& parameters)
      : after_(c.norm_placement == NormPlacement::after), name_(norm), dropped_(c.dropout.residual) {
    if (has_first_norm(c, norm)) norm_.emplace(c, norm, parameters);
    if (c.norms_output()) norm_of_sum_.emplace(c, second_norm, parameters);
  }
  void add(std::unique_ptr<Branch<T>> branch) { branches_.push_back(std::move(branch)); }

  // Returns y, a tensor of the frame.
  Tensor2<T> forward(Pass& a, Frame&, Tensor2<T> x);
  // dx holds the gradient of y on entry and that of x on return.
  void backward(Pass& a, Frame&, Tensor2<T> dx, MatrixGradients);
  // Computes the weight gradients that backward() has postponed (MatrixGradients::later).
  void backward_weights(Pass& a, Frame&);

 private:
  struct Keys {
    static constexpr Key<Tensor2<T>> input{"input"}, output{"output", RecomputeCost::sum, Phase::input_gradients},
        gradient{"gradient of output, all rows"};
  };
  // Returns x + sum of branches(h), a tensor of the frame; without x if the sum has a norm of its own.
  Tensor2<T> add_branches(Pass& a, Frame&, Tensor2<T> h, Tensor2<const T> x);
  Tensor2<T> add_normed(Pass& a, Frame&, Tensor2<T> sum, Tensor2<const T> x);
  // y = x + dropout(y)
  void join(const Pass& a, Tensor2<const T> x, Tensor2<T> y) const;
  // Returns the gradient of the sum of the branches, given the gradient dy of y. If dy is also the gradient of x, it is
  // not changed. The result is in scratch or is dy itself. `spare`: memory of the size of dy that may be overwritten.
  Tensor2<T> gradient_of_sum(Pass& a, Frame&, Tensor2<T> dy, Tensor2<T> spare);
  Frame& frame_of_sum(Frame& frame) const { return frame.nested(int(branches_.size()), "norm of the sum"); }
  Dropout dropout(const Pass& a) const { return a.dropout(name_, dropped_); }
  // Input of the branches.
  Tensor2<T> read_by_branches(Frame& frame) const { return reads_stream() ? frame.get(Keys::input) : norm_->normed_rows(frame); }
  bool reads_stream() const { return after_ || !norm_; }

  std::optional<Norm<T>> norm_, norm_of_sum_;
  bool after_;
  std::string name_;  // name that seeds the random stream of dropout
  double dropped_;
  std::vector<std::unique_ptr<Branch<T>>> branches_;
};

}  // namespace gyr
