// SPDX-License-Identifier: BSD-3-Clause
// Token embedding, sharded over the tensor axis by vocabulary.
#pragma once

#include "kernels/embedding.hpp"
#include "modules/layer.hpp"

namespace gyr {

// The embedding's weight; a tied head declares the same.
Weight embedding_weight(const ModelConfig&);

class Embedding {
 public:
  Embedding(const ModelConfig& c, Parameters& parameters) : c_(c), table_(parameters.declare(embedding_weight(c))) {
    if (c.tie_word_embeddings) parameters.keep_whole();
  }

  // x (R,D) = table(tokens) * embedding_multiplier, of the rows of the stream that this rank keeps: a tensor of the frame. One sum over the
  // tensor axis.
  AnyTensor2 forward(Pass&, Frame&, Tensor1<const Token> tokens /*(R)*/);
  void backward(Pass&, Frame&, const AnyTensor2& dx);
  Parameter& table() { return table_; }

 private:
  static constexpr Key<Tensor1<const Token>> input{"tokens"};
  static constexpr Key<AnyTensor2> embedded{"embedded"};

  ModelConfig c_;
  Parameter& table_;
};

}  // namespace gyr
