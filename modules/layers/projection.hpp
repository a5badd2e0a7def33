// SPDX-License-Identifier: BSD-3-Clause
// Linear layer with adjacent weights, whose outputs are side by side, and their LoRA adapters (adapter.hpp): GEMMs for
// the output, the input gradient and the weight gradients. With ternary weights (model.linear) these are the GEMMs of
// ternary_linear.hpp, and there are no adapters. With train.fp8 they are those of fp8_linear.hpp, and adapters keep the
// type of the model. The backward recomputes the low-rank GEMM x a', because storing its result costs more than
// computing it.
#pragma once

#include "modules/layers/fp8_linear.hpp"
#include "modules/layers/ternary_linear.hpp"

namespace gyr {

// Calls body(adapter, first output column of its weight, number of columns) for each adapter.
template <class Body>
void for_adapters(Adjacent weights, const Body& body) {
  Index column = 0;
  for (const Parameter* w : weights) {
    if (w && w->adapter) body(*w->adapter, column, w->rows());
    column += w ? w->rows() : 0;
  }
}

// y = scale x (w + s b a)' + beta y, with a, b and s the matrices and the scale of the weight's LoRA adapter.
// largest: magnitudes of the rows of x, for a row-parallel layer (save_magnitudes). all_x: the rows of the micro-batch, if x has only some.
template <class T>
void adapted_linear(Pass& a, Adjacent weights, std::type_identity_t<Matrix<const T>> x /*(R,K)*/, std::type_identity_t<Matrix<T>> y /*(R,N)*/,
                    double scale = 1, double beta = 0, Tensor1<const Acc<T>> largest = {}, std::type_identity_t<Matrix<const T>> all_x = {}) {
  if (first_of(weights).ternary) return TernaryLinear<T>(a, weights).forward(x, largest, y, scale, beta);
  Device& dev = a.dev;
  if (a.fp8 != Fp8Recipe::none) Fp8Linear<T>(a, weights).forward(x, all_x.data ? all_x : x, y, scale, beta);
  else linear<T>(dev, x, first_of(weights).template factor<T>(outputs_of(weights)), y, scale, beta);
  for_adapters(weights, [&](const Adapter& adapter, Index column, Index count) {
    Scope scope(dev.scratch);
    const auto u = dev.scratch.named("adapter: x a'").template tensor<T>(x.rows, adapter.a->rows());
    linear<T>(dev, x, adapter.a->template matrix<const T>(), u);
    linear<T>(dev, u, adapter.b->template matrix<const T>(), y.block(0, y.rows, column, count), scale * adapter.scale, 1);
  });
}

// dx = scale dy (w + s b a) + beta dx.
template <class T>
void adapted_linear_backward_input(Pass& a, Adjacent weights, std::type_identity_t<Matrix<const T>> dy /*(R,N)*/,
                                   std::type_identity_t<Matrix<T>> dx /*(R,K)*/, double scale = 1, double beta = 0) {
  if (first_of(weights).ternary) return TernaryLinear<T>(a, weights).backward_input(dy, dx, scale, beta);
  Device& dev = a.dev;
  const auto w = first_of(weights).template matrix<const T>();
  if (a.fp8 != Fp8Recipe::none) Fp8Linear<T>(a, weights).backward_input(dy, dx, scale, beta);
  else linear_backward_input<T>(dev, dy, Matrix<const T>(w.data(), outputs_of(weights), w.extent(1), w.extent(1)), dx, scale, beta);
  for_adapters(weights, [&](const Adapter& adapter, Index column, Index count) {
    Scope scope(dev.scratch);
    const auto du = dev.scratch.named("adapter: dy b").template tensor<T>(dy.rows, adapter.a->rows());
    linear_backward_input<T>(dev, dy.block(0, dy.rows, column, count), adapter.b->template matrix<const T>(), du, scale * adapter.scale);
    linear_backward_input<T>(dev, du, adapter.a->template matrix<const T>(), dx, 1, 1);
  });
}

// dw += scale dy' x, da += s scale (dy b)' x, db += s scale dy' (x a').
template <class T>
void adapted_weights_backward(Pass& a, Adjacent weights, std::type_identity_t<Matrix<const T>> dy /*(R,N)*/,
                              std::type_identity_t<Matrix<const T>> x /*(R,K)*/, double scale = 1, Tensor1<const Acc<T>> largest = {}) {
  if (first_of(weights).ternary) return TernaryLinear<T>(a, weights).backward_weights(weights, dy, x, largest, scale);
  Device& dev = a.dev;
  if (a.fp8 != Fp8Recipe::none) Fp8Linear<T>(a, weights).backward_weights(weights, dy, x, scale);
  else weights_backward<T>(dev, weights, dy, x, scale);
  for_adapters(weights, [&](const Adapter& adapter, Index column, Index count) {
    Scope scope(dev.scratch);
    const auto u = dev.scratch.named("adapter: x a'").template tensor<T>(x.rows, adapter.a->rows());
    const auto mine = dy.block(0, dy.rows, column, count);
    if (adapter.b->trained) {
      linear<T>(dev, x, adapter.a->template matrix<const T>(), u);
      weights_backward<T>(dev, {adapter.b}, mine, u, scale * adapter.scale);
    }
    if (adapter.a->trained) {
      linear_backward_input<T>(dev, mine, adapter.b->template matrix<const T>(), u, scale * adapter.scale);
      weights_backward<T>(dev, {adapter.a}, u, x);
    }
  });
}

}  // namespace gyr
