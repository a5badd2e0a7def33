// SPDX-License-Identifier: BSD-3-Clause
// Multi-head latent attention (MLA; DeepSeek-AI, "DeepSeek-V2", 2024): assembles keys and values of all heads. A key has non-rotary channels of its
// head and rotary channels that all heads share. Only the rotary channels are rotated by the row's position, as in rope.hpp.
//   R rows, H heads, N non-rotary and P rotary channels per head of queries and keys (qk_nope_head_dim, qk_rope_head_dim), E = N + P, V v_head_dim
#pragma once

#include "kernels/ops/rope.hpp"

namespace gyr {

struct LatentHeads {
  Index heads, non_rotary, rotary, values;
  bool neighbours;  // true: the two channels of a rotary pair are adjacent; false: they are P/2 channels apart

  GYR_FUNCTION Index width() const { return non_rotary + rotary; }
  GYR_FUNCTION Index expanded() const { return non_rotary + values; }
  // Channels of rotary pair j, counted within the rotary channels.
  GYR_FUNCTION Index first(Index j) const { return neighbours ? 2 * j : j; }
  GYR_FUNCTION Index second(Index j) const { return neighbours ? 2 * j + 1 : j + rotary / 2; }
};

// Rotates the last P channels of q in place. For every head: k = (first N channels of expanded, rotated shared), v = last V
// channels of expanded.
template <class T>
void expand_heads(Device&, const LatentHeads&, const Rotation<Acc<T>>&, Tensor1<const std::int32_t> positions /*(R)*/,
                  Matrix<const T> expanded /*(R,H (N+V))*/, Matrix<const T> shared /*(R,P)*/, Matrix<T> q /*(R,H E)*/, Matrix<T> k /*(R,H E)*/,
                  Matrix<T> v /*(R,H V)*/);

// The transpose: gradients of q before its rotation (dq_before), of expanded (down), and of shared (dshared, summed over
// heads).
template <class T>
void expand_heads_backward(Device&, const LatentHeads&, const Rotation<Acc<T>>&, Tensor1<const std::int32_t> positions, Matrix<const Acc<T>> dq,
                           Matrix<const Acc<T>> dk, Matrix<const Acc<T>> dv, Matrix<T> dq_before, Matrix<T> down, Matrix<T> dshared);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class T>
void expand_heads(Device&, const LatentHeads&, const Rotation<Acc<T>>&, Tensor1<const std::int32_t> positions, Matrix<const T> expanded,
                  Matrix<const T> shared, Matrix<T> q, Matrix<T> k, Matrix<T> v);
template <class T>
void expand_heads_backward(Device&, const LatentHeads&, const Rotation<Acc<T>>&, Tensor1<const std::int32_t> positions, Matrix<const Acc<T>> dq,
                           Matrix<const Acc<T>> dk, Matrix<const Acc<T>> dv, Matrix<T> dq_before, Matrix<T> down, Matrix<T> dshared);

}  // namespace backend

}  // namespace gyr
