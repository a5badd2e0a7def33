// SPDX-License-Identifier: BSD-3-Clause
// Token embedding, and that of positions where they are learned, sharded over the tensor axis by their rows; that of token types, the norm behind
// their sum, and the table of relative positions, where the model has them; and dropout behind all (model.dropout.embedding).
#pragma once

#include "kernels/ops/embedding.hpp"
#include "modules/layers/relative_bias.hpp"

namespace gyr {

// The embedding's weight; a tied head declares the same.
Weight embedding_weight(const ModelConfig&);

// A norm, whatever the scalar.
class EmbeddingNorm {
 public:
  virtual ~EmbeddingNorm() = default;
  virtual AnyTensor2 forward(Pass&, Frame&, const AnyTensor2& x) = 0;
  virtual void backward(Pass&, Frame&, const AnyTensor2& dy, const AnyTensor2& dx) = 0;
};

class Embedding {
 public:
  Embedding(const ModelConfig&, Parameters&);

  // x (R,D) = table(tokens) * embedding_multiplier + positions(where they stand) + types(type), or the norm of that, of the rows of the stream that
  // this rank keeps: a tensor of the frame. One sum over the tensor axis. No types: all have the first.
  AnyTensor2 forward(Pass&, Frame&, Tensor1<const Token> tokens /*(R)*/, Tensor1<const Token> types = {} /*(R)*/);
  // dx is no gradient any more on return.
  void backward(Pass&, Frame&, const AnyTensor2& dx);
  Parameter& table() { return table_; }
  // What the scores of the layers behind it are added by distance; null where the model has no such table.
  const RelativeBias* relative_bias() const { return relative_bias_ ? &*relative_bias_ : nullptr; }

 private:
  static constexpr Key<Tensor1<const Token>> input{"tokens"}, input_types{"types of tokens"};
  static constexpr Key<AnyTensor2> embedded{"embedded", RecomputeCost::sum, Phase::input_gradients};
  void sum_backward(Pass&, Frame&, const AnyTensor2& dx);
  void drop(Pass&, const AnyTensor2& x) const;
  template <class T>
  void add_types(Pass&, Tensor1<const Token> types, Tensor2<T> x) const;

  ModelConfig c_;
  Parameter& table_;
  Parameter *positions_ = nullptr, *types_ = nullptr;
  std::unique_ptr<EmbeddingNorm> norm_;
  std::optional<RelativeBias> relative_bias_;
};

}  // namespace gyr
