// SPDX-License-Identifier: BSD-3-Clause
// Token embedding and learned position embedding, both sharded over the tensor-parallel ranks by rows; token type
// embedding, norm of their sum, and relative position bias, if the model has them; and embedding dropout
// (model.dropout.embedding).
#pragma once

#include "modules/layers/relative_bias.hpp"
#include "modules/pass/named_values.hpp"

namespace gyr {

// Weight of the token embedding. A tied output head declares the same weight.
Weight embedding_weight(const ModelConfig&);

// Norm of the embedding output, independent of the scalar type.
class EmbeddingNorm {
 public:
  virtual ~EmbeddingNorm() = default;
  virtual AnyTensor2 forward(Pass&, Frame&, const AnyTensor2& x) = 0;
  virtual void backward(Pass&, Frame&, const AnyTensor2& dy, const AnyTensor2& dx) = 0;
};

inline const ValueName<Token> token_types{"token types"};  // (rows) type of each token (token_type_ids)

class Embedding {
 public:
  // Weights PREFIXembed_tokens.weight, and so on.
  Embedding(const ModelConfig&, Parameters&, const std::string& prefix = "model.");

  // x (R,D) = table(tokens) * embedding_multiplier + positions(position) + types(type), normalised if the model has
  // that norm. Returns this rank's rows of the residual stream, a tensor of the frame. One sum over the tensor-parallel
  // group. Without values of the field token_types, all tokens have type 0.
  AnyTensor2 forward(Pass&, Frame&, Tensor1<const Token> tokens /*(R)*/, const NamedDeviceValues& = {});
  // dx: gradient of this rank's rows of the output. With dropout, dx is scaled in place.
  void backward(Pass&, Frame&, const AnyTensor2& dx);
  Parameter& table() { return table_; }
  // Relative position bias for the scores of the layers that follow; null if the model has none.
  const RelativeBias* relative_bias() const { return relative_bias_ ? &*relative_bias_ : nullptr; }

 private:
  static constexpr Key<Tensor1<const Token>> input{"tokens"}, input_types{"token types"};
  static constexpr Key<AnyTensor2> embedded{"embedding output", RecomputeCost::sum, Phase::input_gradients};
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
