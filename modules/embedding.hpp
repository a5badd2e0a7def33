// SPDX-License-Identifier: BSD-3-Clause
// Token embedding, and that of positions where they are learned, sharded over the tensor axis by their rows.
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
    if (c.tie_word_embeddings && c.positions > 0) parameters.begin_group();  // the matrix is cut alike at both ends of the model, and alone there
    if (c.positions > 0)
      positions_ =
          &parameters.declare({"model.embed_positions.weight", {c.positions, c.hidden_size}, by_rows({{c.positions, 0}}), normal(c.init_std)});
  }

  // x (R,D) = table(tokens) * embedding_multiplier + positions(where they stand), of the rows of the stream that this rank keeps: a tensor of the
  // frame. One sum over the tensor axis.
  AnyTensor2 forward(Pass&, Frame&, Tensor1<const Token> tokens /*(R)*/);
  void backward(Pass&, Frame&, const AnyTensor2& dx);
  Parameter& table() { return table_; }

 private:
  static constexpr Key<Tensor1<const Token>> input{"tokens"};
  static constexpr Key<AnyTensor2> embedded{"embedded"};

  ModelConfig c_;
  Parameter& table_;
  Parameter* positions_ = nullptr;
};

}  // namespace gyr
