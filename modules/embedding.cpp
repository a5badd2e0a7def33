// SPDX-License-Identifier: BSD-3-Clause
#include "modules/embedding.hpp"

#include "modules/stream.hpp"

namespace gyr {

Weight embedding_weight(const ModelConfig& c) {
  return {"model.embed_tokens.weight", {c.vocab_size, c.hidden_size}, by_rows({{c.vocab_size, 0}}), normal(c.init_std)};
}

AnyTensor2 Embedding::forward(Pass& a, Frame& frame, Tensor1<const Token> tokens) {
  const Device::Purpose purpose(a.dev, "embedding: rows x hidden");
  frame.refer(input, tokens);
  const AnyTensor2 x = frame.put(embedded, table_.dtype(), a.stream.share(), c_.hidden_size);
  with_type(x.dtype, [&]<class T>(std::type_identity<T>) {
    Scope scope(a.dev.scratch);
    AllRows<T> sum(a, "parts of the embedded", x.as<T>());
    embedding<T>(a.dev, tokens, table_.matrix<const T>(), table_.first(0), c_.embedding_multiplier, sum.rows());
    if (positions_) {
      const auto here = a.scratch<T>("positions", a.stream.rows, c_.hidden_size);
      embedding<T>(a.dev, a.sequences.positions, positions_->matrix<const T>(), positions_->first(0), 1, here);
      add<T>(a.dev, flat(here), flat(sum.rows()));
    }
    sum.reduce();
  });
  return x;
}

void Embedding::backward(Pass& a, Frame& frame, const AnyTensor2& dx) {
  if (!table_.trained && !(positions_ && positions_->trained)) return;
  const Device::Purpose purpose(a.dev, "embedding, backward: rows x hidden");
  const auto tokens = frame.get(input);
  with_type(dx.dtype, [&]<class T>(std::type_identity<T>) {
    Scope scope(a.dev.scratch);
    const Tensor2<T> all = AllRows<T>(a, "gradient, all rows", dx.as<T>()).gather();
    if (table_.trained)
      embedding_backward<T>(a.dev, tokens, all, table_.first(0), c_.embedding_multiplier, c_.pad_token_id, table_.matrix_gradient<Acc<T>>());
    if (positions_ && positions_->trained)
      embedding_backward<T>(a.dev, a.sequences.positions, all, positions_->first(0), 1, -1, positions_->matrix_gradient<Acc<T>>());
  });
}

}  // namespace gyr
