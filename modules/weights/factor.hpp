// SPDX-License-Identifier: BSD-3-Clause
// Weight operand of a linear layer's GEMM: as stored, or quantised to int8 in a model that is only read.
#pragma once

#include "kernels/ops/gemm.hpp"
#include "kernels/ops/int8_matrix.hpp"

namespace gyr {

template <class T>
struct Factor {
  Matrix<const T> stored;  // weight as stored; empty if the weight is held in int8
  Int8Matrix int8 = {};
};

// y (R,N) = alpha x (R,K) w' + beta y.
template <class T, class S = T>
void linear(Device& dev, Matrix<const T> x, const Factor<T>& w /*(N,K)*/, Matrix<std::type_identity_t<S>> y, double alpha = 1, double beta = 0) {
  if (w.int8) linear<T, S>(dev, x, w.int8, y, alpha, beta);
  else linear<T, S>(dev, x, w.stored, y, alpha, beta);
}

}  // namespace gyr
