// SPDX-License-Identifier: BSD-3-Clause
// What stands behind the last layer: it scores the rows that have a label, and predicts. Each objective (objective.hpp) has its own.
#pragma once

#include <optional>

#include "kernels/ops/cross_entropy.hpp"
#include "modules/layers/norm.hpp"

namespace gyr {

// What a model makes of one row's label: its loss, how far it lies below what the model finds likeliest (0: nothing is likelier), of a head that
// tells it what that is, and the label.
struct RowScore {
  double loss, shortfall;
  Token likeliest = -1, label = ignored_label;
};

// What a model says of a micro-batch, read by the host; of what ranks share each has its own rows. Rows without a label mean nothing.
struct ObjectiveScores {
  std::vector<RowScore> rows;        // every row
  std::vector<RowScore> order = {};  // where the order of halves is told: the same rows
  std::vector<double> margins = {};  // where texts are compared: by how much each pair's chosen text is preferred; of ranks that share sequences the
                                     // first has them
};

// Labels of the rows of a micro-batch: what row r is scored by, or ignored_label. Where few rows can have one, these rows besides, in order and as
// many as there may be: picked(p) is the row, -1 behind the last one, label(p) its label, and place(r) the p of row r, -1 of a row without.
struct Labels {
  Tensor1<const Token> of_rows;                  // (R)
  Tensor1<const Token> picked = {}, label = {};  // (P), or empty
  Tensor1<const Token> place = {};               // (R), or empty
  // Where tokens further ahead are told: of each depth the token that every row reads, and its label there. Where the order of halves is told: no
  // tokens, and the label of each row that tells it.
  struct Ahead {
    Tensor1<const Token> tokens, labels;  // (R)
  };
  std::vector<Ahead> ahead = {};
  // Where texts are compared (text_pairs.hpp): P pairs. Of ranks that share sequences each has all pairs and its own rows.
  struct Pairs {
    Tensor1<const Token> text_of_row;      // (R)
    Tensor1<const Token> label_of_pair;    // (P)
    Tensor1<const double> reference = {};  // (2 P)
  };
  Pairs pairs = {};

  bool are_few() const { return picked.extent(0) > 0; }
};

class Head {
 public:
  // `w`: the output matrix, with a row for each column of what is predicted, sharded by rows.
  explicit Head(Parameter& w) : w_(w) {}
  virtual ~Head() = default;

  // Adds the sum of the losses of all labelled rows to `sum` (1), on the device, and nothing is read; `said`, if given, gets what is said besides.
  virtual void loss(Pass&, Frame&, const AnyTensor2& x, const Labels&, Tensor1<double> sum, ObjectiveScores* said) = 0;
  // The same, and the gradient of scale(0) * loss: of the weights (added up) and, in backward, of x (dx). Behind it in `sum` come the sums of each
  // further loss (Objective::further_losses), and behind the scale, which lies on the device, what these count with.
  virtual void loss_and_gradient(Pass&, Frame&, const AnyTensor2& x, const Labels&, Tensor1<const double> scales /*(1 + further losses)*/,
                                 Tensor1<double> sums /*(1 + further losses)*/) = 0;
  virtual void backward(Pass&, Frame&, const AnyTensor2& dx) = 0;
  // This rank's columns of what is predicted of every row, in the accumulator's precision.
  // Of a stream that is whole.
  virtual void predict(Pass&, Frame&, const AnyTensor2& x, const AnyTensor2& y /*(R, columns_here)*/) = 0;

  Parameter& weight() { return w_; }
  // The embedding's matrix, of a head that shares it.
  virtual Parameter& table() { return w_; }
  // Of the prediction's columns this rank has so many, the first of them this one; those from `valid` on are padding.
  Index columns_here() const { return w_.rows(); }
  Index first_column() const { return w_.first(0); }
  Index valid() const { return w_.held.boxes.empty() ? 0 : w_.held.boxes[0].box.count[0]; }
  // Shows the predictions that scores are made of, (rows, columns_here), block by block in the order of rows.
  void set_observer(std::function<void(const AnyTensor2&)> observer) { observer_ = std::move(observer); }

 protected:
  Parameter& w_;
  std::function<void(const AnyTensor2&)> observer_;
};

}  // namespace gyr
