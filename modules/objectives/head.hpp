// SPDX-License-Identifier: BSD-3-Clause
// Output head after the last layer: scores the rows that have a label, and predicts. Each objective (objective.hpp) has
// its own.
#pragma once

#include <optional>

#include "kernels/ops/cross_entropy.hpp"
#include "modules/layers/norm.hpp"
#include "modules/pass/named_values.hpp"

namespace gyr {

// Score of one row's label: the loss; shortfall, the largest logit minus the label's logit (0: no token or class is
// likelier); likeliest, the most likely token or class (-1: not computed); and the label.
struct RowScore {
  double loss, shortfall;
  Token likeliest = -1, label = ignored_label;
};

// Evaluation results of a micro-batch, on the host. With context parallelism each rank has its own rows. Rows without a
// label are undefined.
struct ObjectiveScores {
  std::vector<RowScore> rows;        // scores of all rows of this rank
  std::vector<RowScore> order = {};  // sentence-order prediction: scores of the same rows
  // preference: reward of each text, as in the field reference_of_text; with context parallelism on the first rank only
  std::vector<double> of_texts = {};
  std::vector<double> margins = {};  // preference: margin of each pair's chosen response; with context parallelism on the first rank only
};

// Labels of the rows of a micro-batch; ignored_label for rows that are not scored. If few rows can have a label, these
// rows are also listed, in order, with P the maximum number of them: picked(p) is the row, -1 after the last one;
// label(p) is its label; place(r) is the p of row r, -1 if it has no label.
struct Labels {
  Tensor1<const Token> of_rows;                  // (R) label of each row
  Tensor1<const Token> picked = {}, label = {};  // (P) row index and label of each labelled row; empty unless few rows can have one
  Tensor1<const Token> place = {};               // (R) index among the labelled rows, -1: no label; empty likewise
  NamedDeviceValues values = {};                 // fields that the objective declares (Objective::fields)

  bool are_few() const { return picked.extent(0) > 0; }
};

class Head {
 public:
  // `w`: output matrix with a row for each token or class, sharded by rows.
  explicit Head(Parameter& w) : w_(w) {}
  virtual ~Head() = default;

  // Adds the losses of all labelled rows to `sum` (1) on the device. Results are copied to the host only if `scores` is
  // given, which then receives them.
  virtual void loss(Pass&, Frame&, const AnyTensor2& x, const Labels&, Tensor1<double> sum, ObjectiveScores* scores) = 0;
  // As loss(), and computes the gradient of scales(0) * loss: weight gradients accumulate, and backward() returns that
  // of x. The other elements of `sums` and `scales` belong to the further losses (Objective::further_losses). `scales`
  // is on the device.
  virtual void loss_and_gradient(Pass&, Frame&, const AnyTensor2& x, const Labels&, Tensor1<const double> scales /*(1 + further losses)*/,
                                 Tensor1<double> sums /*(1 + further losses)*/) = 0;
  virtual void backward(Pass&, Frame&, const AnyTensor2& dx) = 0;
  // This rank's columns of the logits of every row, in accumulator precision. Not with sequence parallelism: x has all
  // rows.
  virtual void predict(Pass&, Frame&, const AnyTensor2& x, const AnyTensor2& y /*(R, columns_here)*/) = 0;

  Parameter& weight() { return w_; }
  // The embedding matrix, if the head shares it.
  virtual Parameter& table() { return w_; }
  // Number of output columns (tokens or classes) on this rank, and the first of them. Columns from `valid` on are
  // padding.
  Index columns_here() const { return w_.rows(); }
  Index first_column() const { return w_.first(0); }
  Index valid() const { return w_.held.boxes.empty() ? 0 : w_.held.boxes[0].box.count[0]; }
  // The observer receives the logits that scores are computed from, (rows, columns_here), block by block in row order.
  void set_observer(std::function<void(const AnyTensor2&)> observer) { observer_ = std::move(observer); }

 protected:
  Parameter& w_;
  std::function<void(const AnyTensor2&)> observer_;
};

}  // namespace gyr
