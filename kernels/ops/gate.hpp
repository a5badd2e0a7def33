// SPDX-License-Identifier: BSD-3-Clause
// Gate of the SSD scan: combines its output y with the gate z as out = y silu(z), or by a gated RMSNorm in either
// order.
//   R rows, E channels on this rank, G norm groups on this rank (consecutive channels), width channels of a full group
// A group may span tensor-parallel ranks: gated_norm_squares sums this rank's channels, the caller all-reduces,
// gated_norm uses the sum.
#pragma once

#include <cmath>

#include "kernels/ops/rmsnorm.hpp"

namespace gyr {

// gate_first: norm(y silu(z)); norm_first: norm(y) silu(z); none: norm(y). Without a gate, z has no effect and dz is not
// written. Both may then be any matrices of y's shape.
enum class GateOrder { gate_first, norm_first, none };

template <class T>
void gate(Device&, Matrix<const T> y /*(R,E)*/, Matrix<const T> z /*(R,E)*/, Tensor2<T> out /*(R,E)*/);

// dy = dout silu(z),   dz = dout y silu'(z)
template <class T>
void gate_backward(Device&, Tensor2<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor2<T> dy, Matrix<T> dz);

// squares(r, g) = sum over this rank's channels of group g of v^2, with v = y silu(z) (gate_first) or v = y
// (otherwise).
template <class T>
void gated_norm_squares(Device&, GateOrder, Matrix<const T> y, Matrix<const T> z, Tensor2<Acc<T>> squares /*(R,G)*/);

// With rstd = 1 / sqrt(squares / width + eps):   gate_first and none: out = w v rstd,   norm_first: out = w y rstd silu(z)
template <class T>
void gated_norm(Device&, GateOrder, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w /*(E)*/, Tensor2<const Acc<T>> squares, Index width,
                double eps, Matrix<T> out /*(R,E)*/);

// With vh = v rstd, dn = dout (gate_first, none) or dout silu(z) (norm_first):   dots(r, g) = sum of dn w vh,   dw += sum
// over rows of dn vh
template <class T>
void gated_norm_dots(Device&, GateOrder, Matrix<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                     Tensor2<const Acc<T>> squares, Index width, double eps, Tensor2<Acc<T>> dots /*(R,G)*/, Tensor1<Acc<T>> dw /*+=, or empty*/);

// dv = rstd (dn w - vh dots / width)
//   gate_first: dy = dv silu(z), dz = dv y silu'(z);   norm_first: dy = dv, dz = dout w vh silu'(z);   none: dy = dv. dy may be dout's memory.
template <class T>
void gated_norm_backward(Device&, GateOrder, Matrix<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                         Tensor2<const Acc<T>> squares, Tensor2<const Acc<T>> dots, Index width, double eps, Matrix<T> dy, Matrix<T> dz);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

// Shape of the gated RMSNorm, common to its four kernels.
struct NormGroups {
  Index rows, channels, groups, width;  // width: channels of a norm group on this rank
};
template <class T, class A>
NormGroups norm_groups(const Matrix<const T>& y, const Tensor2<A>& squares) {
  const Index groups = squares.extent(1);
  return {y.rows, y.columns, groups, y.columns / groups};
}
// 1 / rms of a group, from its sum of squares over `width` channels.
template <class A>
GYR_FUNCTION A norm_factor(A squares, Index width, double eps) {
  return A(1 / std::sqrt(double(squares) / double(width) + eps));
}
template <class T>
void gate(Device&, Matrix<const T> y, Matrix<const T> z, Tensor2<T> out);
template <class T>
void gate_backward(Device&, Tensor2<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor2<T> dy, Matrix<T> dz);
template <class T>
void gated_norm_squares(Device&, GateOrder, Matrix<const T> y, Matrix<const T> z, Tensor2<Acc<T>> squares);
template <class T>
void gated_norm(Device&, GateOrder, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w, Tensor2<const Acc<T>> squares, Index width,
                double eps, Matrix<T> out);
// gated_norm_dots allocates scratch memory.
template <class T>
void gated_norm_dots(Device&, GateOrder, Matrix<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                     Tensor2<const Acc<T>> squares, Index width, double eps, Tensor2<Acc<T>> dots, Tensor1<Acc<T>> dw);
template <class T>
void gated_norm_backward(Device&, GateOrder, Matrix<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                         Tensor2<const Acc<T>> squares, Tensor2<const Acc<T>> dots, Index width, double eps, Matrix<T> dy, Matrix<T> dz);

}  // namespace backend

}  // namespace gyr
