// SPDX-License-Identifier: BSD-3-Clause
// Token embedding, sharded over the tensor axis by vocabulary.
#pragma once

#include "kernels/embedding.hpp"
#include "modules/layer.hpp"

namespace gyr {

// The embedding's weight; a tied head declares the same.
Weight embedding_weight(const ModelConfig&);

template <class T>
class Embedding {
 public:
  Embedding(const ModelConfig& c, Parameters<T>& parameters) : c_(c), table_(parameters.declare(embedding_weight(c))) {}

  // x = table(tokens) * embedding_multiplier, a tensor of the frame. One all-reduce over the tensor axis.
  Tensor2<T> forward(Pass<T>& a, Frame&, Tensor1<const Token> tokens);
  void backward(Pass<T>& a, Frame&, Tensor2<const T> dx);
  Parameter& table() { return table_; }

 private:
  static constexpr Key<Tensor1<const Token>> input{"tokens"};
  static constexpr Key<Tensor2<T>> embedded{"embedded"};

  ModelConfig c_;
  Parameter& table_;
};

}  // namespace gyr
