// SPDX-License-Identifier: BSD-3-Clause
// Update of a flat range of weights by a rule that treats every element alone. g gradient, w weight; m and v are the
// states that a rule keeps of an element. c = 1 - b^t corrects the bias of a state that starts at zero, in step t from 1. Weight decay is
// decoupled.
//   adamw  m = b1 m + (1-b1) g,   v = b2 v + (1-b2) g^2,   w = w - lr (m/c1 / (sqrt(v/c2) + eps) + decay w)
//          (Loshchilov and Hutter 2019)
//   lion   u = sign(b1 m + (1-b1) g),   w = w - lr (u + decay w),   m = b2 m + (1-b2) g   (Chen et al. 2023)
//   sgd    m = b m + g,   w = w - lr (m + decay w), or with Nesterov's momentum w = w - lr (g + b m + decay w)
// A rule is a struct of the settings that stay the same in all steps. Its Element<A> has them as A, and computes an
// element with the values of one step (UpdateValues), which kernels read from device memory, so that a captured CUDA
// graph of the update can be replayed.
#pragma once

#include <array>
#include <cmath>

#include "kernels/device/device.hpp"

namespace gyr {

inline constexpr Index update_values = 8;
using UpdateValues = std::array<double, update_values>;  // values of one step; the rest is 0 if a rule has fewer

// Common to all rules: learning rate and weight decay, both of one weight, and the factor of the gradient, for clipping.
struct StepOfWeight {
  double lr, weight_decay, gradient_scale;
  double number;  // of the step, from 1
};

struct AdamW {
  static constexpr const char* name = "adamw";
  static constexpr int states = 2, flops = 15;
  double beta1, beta2, epsilon;

  UpdateValues values(const StepOfWeight&) const;

  template <class A>
  struct Element {
    A beta1, gain1, beta2, gain2, epsilon;
    A keep = 1, step = 0, root_correction = 1, gradient_scale = 1;

    explicit Element(const AdamW& a) : beta1(A(a.beta1)), gain1(A(1 - a.beta1)), beta2(A(a.beta2)), gain2(A(1 - a.beta2)), epsilon(A(a.epsilon)) {}
    GYR_FUNCTION void set(const A* values) { keep = values[0], step = values[1], root_correction = values[2], gradient_scale = values[3]; }

    // Returns the new w and updates the states.
    GYR_FUNCTION A operator()(A gradient, A (&state)[2], A w) const {
      const A g = gradient_scale * gradient;
      A &m = state[0], &v = state[1];
      m = beta1 * m + gain1 * g;
      v = beta2 * v + gain2 * g * g;
      return keep * w - step * m / (std::sqrt(v) * root_correction + epsilon);
    }
  };
};

struct Lion {
  static constexpr const char* name = "lion";
  static constexpr int states = 1, flops = 9;
  double beta1, beta2;

  UpdateValues values(const StepOfWeight&) const;

  template <class A>
  struct Element {
    A beta1, gain1, beta2, gain2;
    A keep = 1, step = 0, gradient_scale = 1;

    explicit Element(const Lion& a) : beta1(A(a.beta1)), gain1(A(1 - a.beta1)), beta2(A(a.beta2)), gain2(A(1 - a.beta2)) {}
    GYR_FUNCTION void set(const A* values) { keep = values[0], step = values[1], gradient_scale = values[2]; }
    GYR_FUNCTION A operator()(A gradient, A (&state)[1], A w) const {
      const A g = gradient_scale * gradient;
      const A mixed = beta1 * state[0] + gain1 * g;
      state[0] = beta2 * state[0] + gain2 * g;
      return keep * w - step * (A(mixed > 0) - A(mixed < 0));  // sign(0) = 0
    }
  };
};

struct Sgd {
  static constexpr const char* name = "sgd";
  static constexpr int states = 1, flops = 7;
  double momentum;
  bool nesterov;

  UpdateValues values(const StepOfWeight&) const;

  template <class A>
  struct Element {
    A momentum, of_gradient, of_momentum;
    A keep = 1, step = 0, gradient_scale = 1;

    explicit Element(const Sgd& s) : momentum(A(s.momentum)), of_gradient(A(s.nesterov)), of_momentum(s.nesterov ? A(s.momentum) : A(1)) {}
    GYR_FUNCTION void set(const A* values) { keep = values[0], step = values[1], gradient_scale = values[2]; }
    GYR_FUNCTION A operator()(A gradient, A (&state)[1], A w) const {
      const A g = gradient_scale * gradient;
      state[0] = momentum * state[0] + g;
      return keep * w - step * (of_gradient * g + of_momentum * state[0]);
    }
  };
};

template <class A, class Rule>
using UpdateStates = std::array<Tensor1<A>, std::size_t(Rule::states)>;

// `values`: those of the current step, in device memory. master may be empty if T is Acc<T>: w is then its own master
// weight. Otherwise w = T(master) after the update.
template <class T, class Rule>
void update_weights(Device&, const Rule&, Tensor1<const Acc<T>> values /*(8)*/, Tensor1<const Acc<T>> g, const UpdateStates<Acc<T>, Rule>& states,
                    Tensor1<Acc<T>> master, Tensor1<T> w);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

template <class T, class Rule>
void update_weights(Device&, const Rule&, Tensor1<const Acc<T>> values, Tensor1<const Acc<T>> g, const UpdateStates<Acc<T>, Rule>& states,
                    Tensor1<Acc<T>> master, Tensor1<T> w);

}  // namespace backend

}  // namespace gyr
