// SPDX-License-Identifier: BSD-3-Clause
// Decoding with a KV cache: attention of one new token per sequence to the keys and values in the cache and to its own,
// which are added to the cache. Kernels read the number of earlier tokens from device memory, so that kernels and
// arguments are the same for every token.
#pragma once

#include "kernels/ops/attention.hpp"

namespace gyr {

// KV cache: rows of keys and, from column first_value on, values. Each sequence has `held` rows; the token at position
// p is in row p % held.
template <class T>
struct KeyCache {
  Matrix<T> rows;  // keys and values of all sequences, shape (B held, C)
  Index held;
  Index first_value;
  bool holds_all;  // true: the cache holds every token; false: it holds the last `held` tokens, the sliding window without the token itself
};

// Number of tokens that each sequence has before the new one, (B): in memory that kernels read, and on the host for
// planning and counting. An empty `host` means 0 for every sequence.
struct TokensBefore {
  Tensor1<const std::int32_t> there;
  std::span<const Index> host;
  Index planned(Index b) const { return host.empty() ? 0 : host[std::size_t(b)]; }
};

// shape: B sequences with one query each; shape.keys is ignored. Scores must not have a bias. `fresh` holds the new
// tokens' keys and values, in the columns of the cache. The state is written without being read.
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
