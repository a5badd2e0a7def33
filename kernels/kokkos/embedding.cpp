// SPDX-License-Identifier: BSD-3-Clause
// Kokkos kernels of the embedding lookup and its gradient (kernels/ops/embedding.hpp).
#include "kernels/ops/embedding.hpp"
#include "kernels/base/instances.hpp"
#include "kernels/kokkos/rows.hpp"

namespace gyr::backend {

template <class T>
void embedding(Device& dev, Tensor1<const Token> tokens, Tensor2<const T> table, Index first, double scale, Tensor2<T> x) {
  using A = Acc<T>;
  const Index rows = x.extent(0), hidden_size = x.extent(1), held = table.extent(0);
  const A s = A(scale);
  for_teams(
      "embedding", dev, rows, KOKKOS_LAMBDA(const Team& team, Index r) {
        const Index row = Index(tokens.data()[r]) - first;
        T* const to = x.data() + r * hidden_size;
        if (row >= 0 && row < held) {
          const T* const from = table.data() + row * hidden_size;
          each(team, hidden_size, [=](Index d) { to[d] = T(s * A(from[d])); });
        } else {
          each(team, hidden_size, [=](Index d) { to[d] = T(A(0)); });
        }
      });
}

// A Kokkos team of threads owns some columns of the table and loops over all tokens, so that the rows of equal tokens
// are added in order.
template <class T>
void embedding_backward(Device& dev, Tensor1<const Token> tokens, Tensor2<const T> dx, Index first, double scale, Token pad_token_id,
                        Tensor2<Acc<T>> dtable) {
  if (dev.dry_run()) return;
  using A = Acc<T>;
  const Index rows = dx.extent(0), hidden_size = dx.extent(1), held = dtable.extent(0);
  const A s = A(scale);
  for_teams(
      "embedding_backward", dev, ceil_div(hidden_size, sum_columns), KOKKOS_LAMBDA(const Team& team, Index part) {
        const Index column = part * sum_columns, columns = least(sum_columns, hidden_size - column);
        for (Index r = 0; r < rows; ++r) {
          const Token token = tokens.data()[r];
          const Index row = Index(token) - first;
          if (row < 0 || row >= held || (pad_token_id >= 0 && token == pad_token_id)) continue;
          const T* const from = dx.data() + r * hidden_size + column;
          A* const to = dtable.data() + row * hidden_size + column;
          each(team, columns, [=](Index d) { to[d] += s * A(from[d]); });
        }
      });
}

GYR_SCALARS(GYR_EMBEDDING)

}  // namespace gyr::backend
