// SPDX-License-Identifier: BSD-3-Clause
// Heads that predict tokens of the vocabulary, or classes: a matrix with a row for each, a bias perhaps, and cross-entropy, sharded over the tensor
// axis by these rows; where there are fewer than ranks, some ranks have padding alone. Logits exist for a block of rows at a time: the loss of a
// block and its gradient are taken together, and no rank ever holds a whole row.
#pragma once

#include <span>

#include "modules/objectives/head.hpp"
#include "modules/weights/trainable.hpp"

namespace gyr {

// The norm in front of a head; none where a norm stands behind every sum.
template <class T>
class FinalNorm {
 public:
  FinalNorm(const ModelConfig& c, Parameters& parameters) {
    if (c.norm_placement != NormPlacement::after) norm_.emplace(c, "model.final_layernorm", parameters);
  }
  // x itself where there is none.
  Tensor2<T> forward(Pass& a, Frame& frame, Tensor2<T> x) { return norm_ ? norm_->forward(a, frame, x) : x; }
  void backward(Pass& a, Frame& frame, Tensor2<const T> dh, Tensor2<T> dx) {
    if (norm_) norm_->backward(a, frame, dh, Add::no, dx);
    else convert<T, T>(a.dev, Matrix<const T>(dh), dx);
  }

 private:
  std::optional<Norm<T>> norm_;
};

// The columns of what is predicted, and the weights behind them: NAME.weight has a row for each, NAME.bias a number.
struct Output {
  std::string name;
  Index columns;
  double multiplier = 1, soft_cap = 0;  // of logits; no cap where 0
  bool bias = false;
  bool tied = false;           // the matrix is the embedding's
  Parameter* table = nullptr;  // which lies here too
  bool scored = false;         // scores name the likeliest column
  double dropped = 0;          // share of the matrix's input
  double pair_scale = 0;       // of a loss that compares texts, see paired_loss.hpp
  LossTerms terms = {};        // added to the loss that is trained on; what is only measured is the plain one
};
Output output_of_tokens(const ModelConfig&, Parameter* table);
inline const Output output_of_order{.name = "sentence_order", .columns = 2, .bias = true};  // of the halves of a text

// The output matrix: logits of rows, their losses and gradients.
template <class T>
class VocabularyHead : public Head {
 public:
  // `bias`: of the matrix, or null.
  VocabularyHead(const ModelConfig&, const Output&, Parameter* bias, Parameters&);

 protected:
  using A = Acc<T>;

  // Of the rows of the stream that a rank keeps: adds the loss of all rows to `sum`. With a scale (1), on the device, h becomes the gradient of
  // that times the loss; `said`, if given, gets the score of every row. Training makes logits of rows alone that may have labels.
  void score(Pass&, Tensor2<T> h, const Labels&, Tensor1<const double> scale, Tensor1<double> sum, ObjectiveScores* said);
  // Rows that are scored: losses, if given, become theirs, and the gradient of each row's is divided by divisors(r), or 0 where that is 0.
  struct Rows {
    Tensor1<const Token> labels;
    Tensor1<double> losses = {};
    Tensor1<const A> divisors = {};
    Rows part(Index first, Index n) const;
  };
  // Of all rows, with the gradient of this rank's part of the vocabulary.
  void score_all(Pass&, Tensor2<T> h, const Rows&, Tensor1<const double> scale, Tensor1<double> sum, std::vector<RowScore>* each);
  // This rank's columns.
  void logits_of(Pass&, Tensor2<const T> h, Tensor2<A> logits);

 private:
  void score_labelled_rows(Pass&, Tensor2<T> h, const Labels&, Tensor1<const double> scale, Tensor1<double> sum);
  void block_loss(Pass&, Tensor2<T> h, const Rows&, Tensor1<const double> scale, Tensor1<double> sum, std::vector<RowScore>* each);
  void block_gradient(Pass&, Tensor2<T> h, Tensor2<A> logits, Tensor1<const A> top, Tensor2<const A> sums, const Rows&, Tensor1<const double> scale);

  void add_scores(Pass&, Tensor2<const A> logits, Tensor1<const A> top, Tensor1<A> found, std::span<RowScore> rows);

  Parameter* bias_;
  double multiplier_, soft_cap_;
  LossTerms terms_;
  bool scored_;
};

// The embedding's matrix, of a head that shares it and lies on another stage: the last that is declared there.
Parameter& declare_table_of_first_stage(const ModelConfig&, Parameters&);
// Null where the output has no bias.
Parameter* declare_bias(const Output&, Parameters&);

// With what stands in front of the matrix, declared before it: Front(c, parameters) has forward and backward as FinalNorm has, for the rows of the
// stream that a rank keeps. Base scores them.
template <class T, template <class> class Front, template <class> class Base = VocabularyHead>
class FrontedHead : public Base<T> {
 public:
  FrontedHead(const ModelConfig& c, const Output& output, Parameters& parameters) : FrontedHead(c, Front<T>(c, parameters), output, parameters) {}

  void loss(Pass& a, Frame& frame, const AnyTensor2& x, const Labels& labels, Tensor1<double> sum, ObjectiveScores* said) override {
    this->score(a, front_.forward(a, frame, x.as<T>()), labels, {}, sum, said);
  }

  // The gradient takes the place of what the matrix reads.
  void loss_and_gradient(Pass& a, Frame& frame, const AnyTensor2& x, const Labels& labels, Tensor1<const double> scale,
                         Tensor1<double> sum) override {
    const Tensor2<T> h = front_.forward(a, frame, x.as<T>());
    const Dropout dropout = a.dropout(output_, dropped_);
    frame.refer(gradient, h);
    a.drop<T>(dropout, h, h);
    this->score(a, h, labels, scale, sum, nullptr);
    a.drop<T>(dropout, h, h);
  }
  void backward(Pass& a, Frame& frame, const AnyTensor2& dx) override { front_.backward(a, frame, frame.get(gradient), dx.as<T>()); }

  void predict(Pass& a, Frame& frame, const AnyTensor2& x, const AnyTensor2& logits) override {
    this->logits_of(a, front_.forward(a, frame, x.as<T>()), logits.as<Acc<T>>());
  }

 protected:
  Front<T>& front() { return front_; }

 private:
  FrontedHead(const ModelConfig& c, Front<T> front, const Output& output, Parameters& parameters)
      : Base<T>(c, output, declare_bias(output, parameters), parameters), front_(std::move(front)), output_(output.name), dropped_(output.dropped) {}

  static constexpr Key<Tensor2<T>> gradient{"gradient of normed"};
  Front<T> front_;
  std::string output_;
  double dropped_;
};

}  // namespace gyr
