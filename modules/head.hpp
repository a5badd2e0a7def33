// SPDX-License-Identifier: BSD-3-Clause
// Final norm, output matrix and next-token loss, sharded over the tensor axis by vocabulary. Logits exist for a block of rows at a time:
// the loss of a block and its gradient are taken together, and no rank ever holds a whole row.
#pragma once

#include <optional>

#include "kernels/cross_entropy.hpp"
#include "modules/norm.hpp"

namespace gyr {

// What a model makes of one row's label: its loss, and how far its logit lies below the largest (0: no token is likelier).
struct TokenScore {
  double loss, shortfall;
};

template <class T>
class Head {
 public:
  // table: the embedding's, where the head is tied to it and lies on the same stage; otherwise null.
  Head(const ModelConfig&, Parameter* table, Parameters<T>&);

  // Sum of the losses of all labelled rows; `each`, if given, gets the score of every row besides (rows without a label mean nothing).
  double loss(Pass<T>&, Frame&, Tensor2<const T> x, Tensor1<const Token> labels, std::vector<TokenScore>* each = nullptr);
  // The same, and the gradient of scale * loss, which is not 0: of the weights (added up), and, in backward, of x (dx).
  double loss_and_gradient(Pass<T>&, Frame&, Tensor2<const T> x, Tensor1<const Token> labels, double scale);
  void backward(Pass<T>&, Frame&, Tensor2<T> dx);
  // This rank's columns of the logits, and which tokens they are.
  Parameter& weight() { return *w_; }
  Index vocab_size_here() const { return w_->rows(); }
  Index first_token() const { return w_->shard.pieces[0].global; }
  Index valid() const { return w_->shard.pieces[0].extent; }
  void logits(Pass<T>&, Frame&, Tensor2<const T> x, Tensor2<Acc<T>> logits /*(R, vocab_size_here)*/);
  // Shows the logits that scores are made of, (rows, vocab_size_here), block by block in the order of rows.
  void set_observer(std::function<void(Tensor2<const Acc<T>>)> observer) { observer_ = std::move(observer); }

 private:
  double loss_of_blocks(Pass<T>&, Tensor2<T> h, Tensor1<const Token> labels, double scale, std::vector<TokenScore>* each);
  double block_loss(Pass<T>&, Tensor2<T> h, Tensor1<const Token> labels, double scale, std::vector<TokenScore>* each);

  static constexpr Key<Tensor2<T>> gradient{"gradient of normed"};  // lies where the normed stream was

  ModelConfig c_;
  Norm<T> norm_;
  Parameter* w_;
  std::function<void(Tensor2<const Acc<T>>)> observer_;
};

}  // namespace gyr
