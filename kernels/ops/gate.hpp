// SPDX-License-Identifier: BSD-3-Clause
// How the output y of the SSD scan meets its gate z: out = y silu(z), or a gated RMSNorm in either order.
//   R rows, E channels on this rank, G norm groups on this rank (consecutive channels), width channels of a whole group
// A group may span ranks: the statistics kernel sums this rank's part, the caller all-reduces, the apply kernel uses the sum.
#pragma once

#include "kernels/ops/rmsnorm.hpp"

namespace gyr {

enum class GateOrder { gate_first, norm_first };  // norm(y silu(z)) or norm(y) silu(z)

template <class T>
void gate(Device&, Matrix<const T> y /*(R,E)*/, Matrix<const T> z /*(R,E)*/, Tensor2<T> out /*(R,E)*/);

// dy = do silu(z),   dz = do y silu'(z)
template <class T>
void gate_backward(Device&, Tensor2<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor2<T> dy, Matrix<T> dz);

// squares(r, g) = sum over the rank's channels of group g of v^2, with v = y silu(z) or y.
template <class T>
void gated_norm_squares(Device&, GateOrder, Matrix<const T> y, Matrix<const T> z, Tensor2<Acc<T>> squares /*(R,G)*/);

// With rstd = 1 / sqrt(squares / width + eps):   gate_first: out = w v rstd,   norm_first: out = w y rstd silu(z)
template <class T>
void gated_norm(Device&, GateOrder, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w /*(E)*/, Tensor2<const Acc<T>> squares, Index width,
                double eps, Tensor2<T> out /*(R,E)*/);

// With vh = v rstd, dn = do (gate first) or do silu(z) (norm first):   products(r, g) = sum of dn w vh,   dw += sum over rows of dn vh
template <class T>
void gated_norm_products(Device&, GateOrder, Tensor2<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                         Tensor2<const Acc<T>> squares, Index width, double eps, Tensor2<Acc<T>> products /*(R,G)*/,
                         Tensor1<Acc<T>> dw /*+=, or empty*/);

// dv = rstd (dn w - vh products / width);   gate first: dy = dv silu(z), dz = dv y silu'(z);   norm first: dy = dv, dz = do w vh silu'(z)
template <class T>
void gated_norm_backward(Device&, GateOrder, Tensor2<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                         Tensor2<const Acc<T>> squares, Tensor2<const Acc<T>> products, Index width, double eps, Tensor2<T> dy, Matrix<T> dz);

}  // namespace gyr
