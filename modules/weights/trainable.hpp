// SPDX-License-Identifier: BSD-3-Clause
// Weight gradients of a linear layer of which some weights may be frozen: no GEMM is computed for frozen weights.
#pragma once

#include "kernels/ops/elementwise.hpp"
#include "kernels/ops/gemm.hpp"
#include "modules/weights/parameter.hpp"

namespace gyr {

// Calls body(first, column, count) for each run of adjacent trained parameters. The rows of the parameters (null
// entries are skipped) are, in order, the columns of one matrix. The gradients of a run are contiguous, starting with
// that of `first`.
template <class List, class Body>
void for_trained(const List& all, const Body& body) {
  const Parameter* first = nullptr;
  Index from = 0, column = 0;
  const auto close = [&] {
    if (first) body(*first, from, column - from);
    first = nullptr;
  };
  for (const Parameter* p : all) {
    if (!p) continue;
    if (!p->trained) close();
    else if (!first) first = p, from = column;
    column += p->rows();
  }
  close();
}

// dw += scale * dy' x for adjacent weights whose outputs are, in order, the columns of dy.
template <class T>
void weights_backward(Device& dev, std::initializer_list<const Parameter*> weights, Matrix<const T> dy /*(R,N)*/, Matrix<const T> x /*(R,K)*/,
                      double scale = 1) {
  for_trained(weights, [&](const Parameter& first, Index column, Index count) {
    const auto dw = first.matrix_gradient<Acc<T>>();
    const Index width = dw.extent(1);
    linear_backward_weight<T>(dev, columns(dy, column, count), x, Matrix<Acc<T>>(dw.data(), count, width, width), scale);
  });
}

// db += scale * sum over rows of dy, for adjacent biases likewise.
template <class T>
void biases_backward(Device& dev, std::initializer_list<const Parameter*> biases, Matrix<const T> dy, double scale = 1) {
  for_trained(biases, [&](const Parameter& first, Index column, Index count) {
    bias_backward<T>(dev, columns(dy, column, count), scale, Tensor1<Acc<T>>(first.vector_gradient<Acc<T>>().data(), count));
  });
}

}  // namespace gyr
