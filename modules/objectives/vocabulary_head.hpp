// SPDX-License-Identifier: BSD-3-Clause
// Heads that predict tokens of the vocabulary, or classes: an output matrix with a row for each, an optional bias, and
// cross-entropy. They are sharded over the tensor-parallel ranks by these rows (vocabulary parallel); with fewer rows
// than ranks, some ranks have only padding. Logits are computed for a block of rows at a time, with loss and gradient
// together, and no rank holds a full row of logits.
#pragma once

#include <span>

#include "modules/objectives/head.hpp"
#include "modules/weights/trainable.hpp"

namespace gyr {

// Norm before a head; absent if a norm follows every residual sum (NormPlacement::after).
template <class T>
class FinalNorm {
 public:
  FinalNorm(const ModelConfig& c, Parameters& parameters) {
    if (c.norm_placement != NormPlacement::after) norm_.emplace(c, "model.final_layernorm", parameters);
  }
  // Returns x itself if there is no norm.
  Tensor2<T> forward(Pass& a, Frame& frame, Tensor2<T> x) { return norm_ ? norm_->forward(a, frame, x) : x; }
  void backward(Pass& a, Frame& frame, Tensor2<const T> dh, Tensor2<T> dx) {
    if (norm_) norm_->backward(a, frame, dh, Add::no, dx);
    else convert<T, T>(a.dev, Matrix<const T>(dh), dx);
  }

 private:
  std::optional<Norm<T>> norm_;
};

// Output columns (tokens or classes) and their weights: NAME.weight has a row for each column, NAME.bias an element.
struct Output {
  std::string name;
  Index columns;
  double multiplier = 1, soft_cap = 0;  // logit multiplier; soft cap of the logits, 0: none
  bool bias = false;
  bool tied = false;            // true if the output matrix is the embedding matrix
  Parameter* table = nullptr;   // embedding matrix, if it is on this stage; else null
  bool begins_at_zero = false;  // true if the initial weights are 0 instead of random numbers
  bool scored = false;          // true if row scores include the most likely column
  double dropped = 0;           // dropout probability of the output matrix's input
  double pair_scale = 0;        // DPO beta, for a loss on pairs of texts (paired_loss.hpp)
  LossTerms terms = {};         // label smoothing and z-loss, added to the loss in training only
};
Output output_of_tokens(const ModelConfig&, Parameter* table);
inline const Output output_of_order{.name = "sentence_order", .columns = 2, .bias = true};  // output of sentence-order prediction

// One value per row as a matrix of one column.
template <class S>
Tensor2<S> column(Tensor1<S> x) {
  return Tensor2<S>(x.data(), x.extent(0), 1);
}

// Output matrix of a head: logits, losses and gradients of rows.
template <class T>
class VocabularyHead : public Head {
 public:
  // `bias`: bias of the output, one element per column; null: none.
  VocabularyHead(const ModelConfig&, const Output&, Parameter* bias, Parameters&);

 protected:
  using A = Acc<T>;

  // Adds the loss of all rows to `sum`, given this rank's rows of the residual stream. With `scale` (1) in device
  // memory, h is replaced by the gradient of scale * loss. `scores`, if given, receives the score of every row. In
  // training, logits are only computed for rows that may have a label.
  void score(Pass&, Tensor2<T> h, const Labels&, Tensor1<const double> scale, Tensor1<double> sum, ObjectiveScores* scores);
  // Rows to be scored. `losses` and `entropies`, if given, receive the loss and the entropy of each row. `weights` are factors on the
  // gradients of the rows. `terms`: optional terms of the loss instead of those of the head.
  struct Rows {
    Tensor1<const Token> labels;
    Tensor1<double> losses = {}, entropies = {};
    RowWeights weights = {};
    std::optional<LossTerms> terms = {};
    Rows part(Index first, Index n) const;
  };
  // Scores all rows. The gradient is the partial one from this rank's shard of the vocabulary.
  void score_all(Pass&, Tensor2<T> h, const Rows&, Tensor1<const double> scale, Tensor1<double> sum, std::vector<RowScore>* each);
  // Logits of this rank's columns.
  void logits_of(Pass&, Tensor2<const T> h, Tensor2<A> logits);

 private:
  void score_labelled_rows(Pass&, Tensor2<T> h, const Labels&, Tensor1<const double> scale, Tensor1<double> sum);
  void block_loss(Pass&, Tensor2<T> h, const Rows&, Tensor1<const double> scale, Tensor1<double> sum, std::vector<RowScore>* each);
  void block_gradient(Pass&, Tensor2<T> h, Tensor2<A> logits, Tensor1<const A> top, Tensor2<const A> sums, const Rows&, Tensor1<const double> scale,
                      const LossTerms&);

  void add_scores(Pass&, Tensor2<const A> logits, Tensor1<const A> top, Tensor1<A> found, std::span<RowScore> rows);

  Parameter* bias_;
  double multiplier_, soft_cap_;
  LossTerms terms_;
  bool scored_;
};

// Declares the embedding matrix for a head that shares it and is on another stage, as the last weight of that stage.
Parameter& declare_table_of_first_stage(const ModelConfig&, Parameters&);
// Returns null if the output has no bias.
Parameter* declare_bias(const Output&, Parameters&);

// Head with layers before the output matrix, which are declared first. Front(c, parameters) has forward and backward
// like FinalNorm, for this rank's rows of the residual stream. Base scores the rows.
template <class T, template <class> class Front, template <class> class Base = VocabularyHead>
class FrontedHead : public Base<T> {
 public:
  FrontedHead(const ModelConfig& c, const Output& output, Parameters& parameters) : FrontedHead(c, Front<T>(c, parameters), output, parameters) {}

  void loss(Pass& a, Frame& frame, const AnyTensor2& x, const Labels& labels, Tensor1<double> sum, ObjectiveScores* scores) override {
    this->score(a, front_.forward(a, frame, x.as<T>()), labels, {}, sum, scores);
  }

  // The gradient overwrites the input of the output matrix.
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

  static constexpr Key<Tensor2<T>> gradient{"gradient of the head input"};
  Front<T> front_;
  std::string output_;
  double dropped_;
};

}  // namespace gyr
