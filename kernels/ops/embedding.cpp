// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/embedding.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

template <class T>
void embedding(Device& dev, Tensor1<const Token> tokens, Tensor2<const T> table, Index first, double scale, Tensor2<T> x) {
  const Index rows = x.extent(0), hidden_size = x.extent(1);
  ensure(Index(tokens.extent(0)) == rows && Index(table.extent(1)) == hidden_size,
         "embedding: {} tokens and a table of width {} do not fit x ({},{})", tokens.extent(0), table.extent(1), rows, hidden_size);
  if (const auto run = dev.launch("embedding", double(rows) * hidden_size, 2.0 * sizeof(T) * rows * hidden_size))
    backend::embedding<T>(dev, tokens, table, first, scale, x);
}

template <class T>
void embedding_backward(Device& dev, Tensor1<const Token> tokens, Tensor2<const T> dx, Index first, double scale, Token pad_token_id,
                        Tensor2<Acc<T>> dtable) {
  const Index rows = dx.extent(0), hidden_size = dx.extent(1);
  ensure(Index(tokens.extent(0)) == rows && Index(dtable.extent(1)) == hidden_size,
         "embedding_backward: {} tokens and dx ({},{}) do not fit a table of width {}", tokens.extent(0), rows, hidden_size, dtable.extent(1));
  const Workspace workspace(dev.scratch, "embedding_backward");
  const auto run = dev.launch("embedding_backward", 2.0 * rows * hidden_size, double(sizeof(T) + 2 * sizeof(Acc<T>)) * rows * hidden_size);
  backend::embedding_backward<T>(dev, tokens, dx, first, scale, pad_token_id, dtable);
}

GYR_SCALARS(GYR_EMBEDDING)

}  // namespace gyr
