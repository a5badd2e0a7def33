// SPDX-License-Identifier: BSD-3-Clause
// Attention of one new token of each sequence to the keys and values that a cache has of the tokens before it, and to its own, which join them. How
// many came before is read where kernels run: from token to token the same kernels have the same arguments.
#pragma once

#include "kernels/ops/attention.hpp"

namespace gyr {

// Rows of keys and, from column first_value on, values; `held` of each sequence, the token at position p in row p % held.
template <class T>
struct KeyCache {
  Matrix<T> rows;  // (B held, C)
  Index held;
  Index first_value;
  bool holds_all;  // else a window shows a token itself and the last `held` before it, which may be none
};

// Tokens that each sequence has before the new one, (B): where kernels run, and where work is planned and counted; there, none: nothing came before.
struct TokensBefore {
  Tensor1<const std::int32_t> there;
  std::span<const Index> host;
  Index planned(Index b) const { return host.empty() ? 0 : host[std::size_t(b)]; }
};

// shape: of B sequences with one query each; its keys count for nothing. Scores have no bias. What q meets besides the cache, and what joins it, are
// keys and values `fresh`, in columns as there. The state is written without being read.
template <class T>
void attention_step(Device&, const AttentionShape& shape, const ScoreRule&, Matrix<const T> q /*(B, H E)*/, Matrix<const T> fresh /*(B, C)*/,
                    const KeyCache<T>&, const TokensBefore&, AttentionState<Acc<T>> state);

namespace backend {
template <class T>
void attention_step(Device&, const AttentionShape& shape, const ScoreRule&, Matrix<const T> q, Matrix<const T> fresh, const KeyCache<T>&,
                    const TokensBefore&, AttentionState<Acc<T>> state);
}

#define GYR_ATTENTION_STEP(T)                                                                                                             \
  template void attention_step<T>(Device&, const AttentionShape&, const ScoreRule&, Matrix<const T>, Matrix<const T>, const KeyCache<T>&, \
                                  const TokensBefore&, AttentionState<Acc<T>>);

}  // namespace gyr
