// SPDX-License-Identifier: BSD-3-Clause
// Keys and values of heads that are made of channels which all share, as multi-head latent attention has them (DeepSeek-AI, "DeepSeek-V2", 2024):
// each head has channels of its own and ends in the same ones, which alone turn by their row's position, as rope.hpp has it.
//   R rows, H heads, N channels that stand still and P that turn in a head of queries and keys, E = N + P, V of values
#pragma once

#include "kernels/ops/rope.hpp"

namespace gyr {

struct LatentHeads {
  Index heads, still, turning, values;
  bool neighbours;  // the two channels of a pair are side by side; or else half of those that turn apart

  GYR_FUNCTION Index width() const { return still + turning; }
  GYR_FUNCTION Index own() const { return still + values; }
  // Of pair j, among the channels that turn.
  GYR_FUNCTION Index first(Index j) const { return neighbours ? 2 * j : j; }
  GYR_FUNCTION Index second(Index j) const { return neighbours ? 2 * j + 1 : j + turning / 2; }
};

// q turns in place; of every head k = (own's first N channels, shared turned), v = own's last V.
template <class T>
void expand_heads(Device&, const LatentHeads&, const Rotation<Acc<T>>&, Tensor1<const std::int32_t> positions /*(R)*/,
                  Matrix<const T> own /*(R,H (N+V))*/, Matrix<const T> shared /*(R,P)*/, Matrix<T> q /*(R,H E)*/, Matrix<T> k /*(R,H E)*/,
                  Matrix<T> v /*(R,H V)*/);

// The transpose: gradients of q before it turned, of own, and of shared, which is that of the sum over heads.
template <class T>
void expand_heads_backward(Device&, const LatentHeads&, const Rotation<Acc<T>>&, Tensor1<const std::int32_t> positions, Matrix<const Acc<T>> dq,
                           Matrix<const Acc<T>> dk, Matrix<const Acc<T>> dv, Matrix<T> dq_before, Matrix<T> down, Matrix<T> dshared);

}  // namespace gyr
