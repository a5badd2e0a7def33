// SPDX-License-Identifier: BSD-3-Clause
#include "modules/embedding.hpp"

namespace gyr {

Weight embedding_weight(const ModelConfig& c) {
  return {"model.embed_tokens.weight", {c.vocab_size, c.hidden_size}, by_rows({{c.vocab_size, 0}}), normal(c.init_std)};
}

template <class T>
Tensor2<T> Embedding<T>::forward(Pass<T>& a, Frame& frame, Tensor1<const Token> tokens) {
  frame.refer(input, tokens);
  const auto x = frame.put(embedded, tokens.extent(0), c_.hidden_size);
  embedding<T>(a.dev, tokens, table_.matrix<const T>(), table_.first(0), c_.embedding_multiplier, x);
  a.tensor.whole().all_reduce(a.dev, flat(x));
  return x;
}

template <class T>
void Embedding<T>::backward(Pass<T>& a, Frame& frame, Tensor2<const T> dx) {
  if (!table_.trained) return;
  const auto tokens = frame.get(input);
  embedding_backward<T>(a.dev, tokens, dx, table_.first(0), c_.embedding_multiplier, c_.pad_token_id, table_.matrix_gradient<Acc<T>>());
}

template class Embedding<double>;
template class Embedding<float>;
template class Embedding<bf16>;

}  // namespace gyr
