// SPDX-License-Identifier: BSD-3-Clause
// Muon (Jordan et al. 2024): the update of a matrix is its momentum, orthogonalised. g gradient, b momentum, w weight.
//   b = m b + (1-m) g,   u = (1-m) g + m b with Nesterov's momentum, otherwise b,   w = (1 - lr decay) w - lr s O
// O is the orthogonal factor of the whole matrix u, approximately: newton_schulz (modules/optimizers/newton_schulz.hpp).
// The parts of a matrix that a rank has are strided blocks.
#pragma once

#include "kernels/ops/updates/weight_update.hpp"

namespace gyr {

struct Muon {
  double momentum;
  bool nesterov;

  UpdateValues values(const StepOfWeight&) const;
};

template <class A>
struct MuonElement {
  A momentum, gain, of_gradient, of_momentum;
  A keep = 1, step = 0, gradient_scale = 1;

  explicit MuonElement(const Muon& m)
      : momentum(A(m.momentum)), gain(A(1 - m.momentum)), of_gradient(m.nesterov ? A(1 - m.momentum) : A(0)),
        of_momentum(m.nesterov ? A(m.momentum) : A(1)) {}
  GYR_FUNCTION void set(const A* values) { keep = values[0], step = values[1], gradient_scale = values[2]; }
  GYR_FUNCTION A advance(A g, A b) const { return momentum * b + gain * gradient_scale * g; }
  GYR_FUNCTION A direction(A g, A b) const { return of_gradient * gradient_scale * g + of_momentum * b; }
  GYR_FUNCTION A updated(A w, A o) const { return keep * w - step * o; }
};

// `values`: those of the current step, in device memory.
// b = m b + (1-m) g
template <class A>
void muon_momentum(Device&, const Muon&, Tensor1<const A> values /*(8)*/, Tensor1<const A> g, Tensor1<A> b);
// u of a block, from the momentum after muon_momentum
template <class A>
void muon_direction(Device&, const Muon&, Tensor1<const A> values /*(8)*/, Matrix<const A> g, Matrix<const A> b, Matrix<A> u);
// x = x / max(root of sum(0), 1e-7)
template <class A>
void divide_by_norm(Device&, Tensor1<const double> sum /*(1)*/, Tensor1<A> x);
// Updates a block of w with the block `o` of s O. master may be empty if T is Acc<T>.
template <class T>
void muon_step(Device&, const Muon&, Tensor1<const Acc<T>> values /*(8)*/, Matrix<const Acc<T>> o, Matrix<Acc<T>> master, Matrix<T> w);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class A>
void muon_momentum(Device&, const Muon&, Tensor1<const A> values, Tensor1<const A> g, Tensor1<A> b);
template <class A>
void muon_direction(Device&, const Muon&, Tensor1<const A> values, Matrix<const A> g, Matrix<const A> b, Matrix<A> u);
template <class A>
void divide_by_norm(Device&, Tensor1<const double> sum, Tensor1<A> x);
template <class T>
void muon_step(Device&, const Muon&, Tensor1<const Acc<T>> values, Matrix<const Acc<T>> o, Matrix<Acc<T>> master, Matrix<T> w);

}  // namespace backend

}  // namespace gyr
