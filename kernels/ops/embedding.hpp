// SPDX-License-Identifier: BSD-3-Clause
// Embedding lookup.   R tokens, D hidden_size, V rows of the table on this rank (vocabulary-parallel), starting at
// token `first`
#pragma once

#include "kernels/device/device.hpp"

namespace gyr {

using Token = std::int32_t;

// x(r) = scale table(token(r) - first), or zero if another rank holds that row.
template <class T>
void embedding(Device&, Tensor1<const Token> tokens /*(R)*/, Tensor2<const T> table /*(V,D)*/, Index first, double scale, Tensor2<T> x /*(R,D)*/);

// dtable(token(r) - first) += scale dx(r) for the rows on this rank, except those of `pad_token_id` (negative: no padding token).
// The gradients of a token are added in the order of its rows, independently of the other tokens: every run gives the
// same bits.
template <class T>
void embedding_backward(Device&, Tensor1<const Token> tokens, Tensor2<const T> dx, Index first, double scale, Token pad_token_id,
                        Tensor2<Acc<T>> dtable /*(V,D) +=*/);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class T>
void embedding(Device&, Tensor1<const Token> tokens, Tensor2<const T> table, Index first, double scale, Tensor2<T> x);
template <class T>
void embedding_backward(Device&, Tensor1<const Token> tokens, Tensor2<const T> dx, Index first, double scale, Token pad_token_id,
                        Tensor2<Acc<T>> dtable);

}  // namespace backend

}  // namespace gyr
