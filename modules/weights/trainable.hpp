// SPDX-License-Identifier: BSD-3-Clause
// Gradients of a linear layer's weights where some may be frozen: what is frozen costs no product.
#pragma once

#include "kernels/ops/elementwise.hpp"
#include "kernels/ops/gemm.hpp"
#include "modules/weights/parameter.hpp"

namespace gyr {

// body(first, column, count) for each run of neighbours that are trained, among parameters (null: there is none) whose rows are the columns of one
// matrix, in order: the gradients of a run lie one behind the other from `first` on.
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

// dw += scale * dy' x for the weights, declared adjacent, whose outputs are the columns of dy side by side.
template <class T>
void weights_backward(Device& dev, std::initializer_list<const Parameter*> weights, Matrix<const T> dy /*(R,N)*/, Matrix<const T> x /*(R,K)*/,
                      double scale = 1) {
  for_trained(weights, [&](const Parameter& first, Index column, Index count) {
    const auto dw = first.matrix_gradient<Acc<T>>();
    const Index width = dw.extent(1);
    linear_backward_weight<T>(dev, columns(dy, column, count), x, Matrix<Acc<T>>(dw.data(), count, width, width), scale);
  });
}

// db += scale * sum over rows of dy, for biases in the same way.
template <class T>
void biases_backward(Device& dev, std::initializer_list<const Parameter*> biases, Matrix<const T> dy, double scale = 1) {
  for_trained(biases, [&](const Parameter& first, Index column, Index count) {
    bias_backward<T>(dev, columns(dy, column, count), scale, Tensor1<Acc<T>>(first.vector_gradient<Acc<T>>().data(), count));
  });
}

}  // namespace gyr
