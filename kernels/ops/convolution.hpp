// SPDX-License-Identifier: BSD-3-Clause
// Causal depthwise convolution followed by SiLU: c(t,j) = bias(j) + sum_k w(j,k) x(t-(K-1)+k, j),  y = silu(c), or
// y = c with ConvolutionEnd::linear.
//   B sequences of T tokens (rows b T + t), C channels, kernel of K tokens
//   before (B,K-1,C): the inputs that precede the first token; zeros if empty
//   For each document, inputs from before its first token count as zero, including those in `before`.
#pragma once

#include "kernels/device/device.hpp"
#include "kernels/device/documents.hpp"

namespace gyr {

inline constexpr int largest_conv_kernel = 16;  // largest supported kernel width K

enum class ConvolutionEnd { silu, linear };

template <class T>
void convolution(Device&, Index batch, Matrix<const T> x /*(B T, C)*/, Tensor2<const Acc<T>> w /*(C,K)*/, Tensor1<const Acc<T>> bias /*(C) or empty*/,
                 Tensor3<const T> before /*(B,K-1,C) or empty*/, Matrix<T> y /*(B T, C)*/, const Documents& = {},
                 ConvolutionEnd = ConvolutionEnd::silu);

// dc = dy silu'(c), or dy if linear,  dx(t,j) = sum_k w(j,k) dc(t+(K-1)-k, j),  dw(j,k) += sum dc(t,j) x(t-(K-1)+k, j),  dbias += sum dc;  c is
// recomputed.
template <class T>
void convolution_backward(Device&, Index batch, Matrix<const T> dy, Matrix<const T> x, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias,
                          Tensor3<const T> before, Matrix<T> dx /*=*/, Tensor2<Acc<T>> dw /*+=, or empty*/, Tensor1<Acc<T>> dbias /*+=, or empty*/,
                          Tensor3<T> dbefore /*(B,K-1,C) =, or empty*/, const Documents& = {}, ConvolutionEnd = ConvolutionEnd::silu);

// after = the K-1 inputs that precede the next token: the tail of (before, x). after may be before's memory.
template <class T>
void convolution_tail(Device&, Index batch, Matrix<const T> x, Tensor3<const T> before /*or empty*/, Tensor3<T> after /*(B,K-1,C)*/);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class T>
void convolution(Device&, Index batch, Matrix<const T> x, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias, Tensor3<const T> before, Matrix<T> y,
                 const Documents& documents, ConvolutionEnd);  // this function allocates scratch memory
template <class T>
void convolution_backward(Device&, Index batch, Matrix<const T> dy, Matrix<const T> x, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias,
                          Tensor3<const T> before, Matrix<T> dx, Tensor2<Acc<T>> dw, Tensor1<Acc<T>> dbias, Tensor3<T> dbefore,
                          const Documents& documents, ConvolutionEnd);  // this function allocates scratch memory
template <class T>
void convolution_tail(Device&, Index batch, Matrix<const T> x, Tensor3<const T> before, Tensor3<T> after);

}  // namespace backend

}  // namespace gyr
