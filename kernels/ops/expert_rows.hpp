// SPDX-License-Identifier: BSD-3-Clause
// Rows sent to the experts of a mixture of experts and back. A slot is one choice of a row: slot r K + k. Grouped rows
// are the slots sorted by expert, and by row within an expert. Every slot has a place: no token is dropped, and the
// memory size does not depend on the routing.
//   R rows, K choices of each, E experts, D width, F channels of an expert
#pragma once

#include <cstdint>

#include "kernels/ops/activation.hpp"
#include "kernels/ops/rmsnorm.hpp"

namespace gyr {

// place(r, k): grouped row of that slot;  slot(p): slot of grouped row p, the inverse;  count(e): number of rows of
// expert e
struct ExpertRows {
  Tensor2<std::int32_t> place;  // grouped row of each slot, shape (R,K)
  Tensor1<std::int32_t> slot;   // slot of each grouped row, shape (R K)
  Tensor1<std::int32_t> count;  // number of rows of each expert, shape (E)
};
void group_rows(Device&, Tensor2<const std::int32_t> chosen /*(R,K), each below E*/, const ExpertRows&);

// y(p) = x(slot(p) / K)
template <class T>
void gather_rows(Device&, const ExpertRows&, Tensor2<const T> x /*(R,D)*/, Tensor2<T> y /*(R K,D)*/);
// y(r) (= or +=) the sum over k, in order, of x(place(r, k)): the transpose of gather_rows
template <class T>
void combine_rows(Device&, const ExpertRows&, Tensor2<const T> x /*(R K,D)*/, Add, Tensor2<T> y /*(R,D)*/);

// y(p) = w(slot(p)) up a(gate), with gate and up next to each other as in activation.hpp, or w(slot(p)) a(up) if
// gate_up has the columns of up alone
template <class T>
void weighted_glu(Device&, Activation, const ExpertRows&, Tensor2<const T> gate_up /*(R K,2F)*/, Tensor2<const Acc<T>> w /*(R,K)*/,
                  Tensor2<T> y /*(R K,F)*/);
// dup = w dy a(gate),   dgate = w dy up a'(gate),   dw(slot(p)) = <dy, up a(gate)>; without a gate
// dup = w dy a'(up),   dw(slot(p)) = <dy, a(up)>
template <class T>
void weighted_glu_backward(Device&, Activation, const ExpertRows&, Tensor2<const T> dy, Tensor2<const T> gate_up, Tensor2<const Acc<T>> w,
                           Tensor2<T> dgate_up, Tensor2<Acc<T>> dw);

// Bias b (D) of one expert, times the routing weights, for consecutive grouped rows with the given slots:   y(p) +=
// w(slot(p)) b
template <class T>
void add_weighted_bias(Device&, Tensor1<const std::int32_t> slot /*(N)*/, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias,
                       Tensor2<T> y /*(N,D)*/);
// dw(slot(p)) += <dy(p), b> if dw is not empty,   terms(p) = w(slot(p)) dy(p); the gradient of b is the sum of the
// terms over rows
template <class T>
void weighted_bias_backward(Device&, Tensor1<const std::int32_t> slot, Tensor2<const T> dy, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias,
                            Tensor2<Acc<T>> dw, Tensor2<T> terms);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

void group_rows(Device&, Tensor2<const std::int32_t> chosen, const ExpertRows&);
template <class T>
void gather_rows(Device&, const ExpertRows&, Tensor2<const T> x, Tensor2<T> y);
template <class T>
void combine_rows(Device&, const ExpertRows&, Tensor2<const T> x, Add, Tensor2<T> y);
template <class T>
void weighted_glu(Device&, Activation, const ExpertRows&, Tensor2<const T> gate_up, Tensor2<const Acc<T>> w, Tensor2<T> y);
template <class T>
void weighted_glu_backward(Device&, Activation, const ExpertRows&, Tensor2<const T> dy, Tensor2<const T> gate_up, Tensor2<const Acc<T>> w,
                           Tensor2<T> dgate_up, Tensor2<Acc<T>> dw);
template <class T>
void add_weighted_bias(Device&, Tensor1<const std::int32_t> slot, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias, Tensor2<T> y);
template <class T>
void weighted_bias_backward(Device&, Tensor1<const std::int32_t> slot, Tensor2<const T> dy, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias,
                            Tensor2<Acc<T>> dw, Tensor2<T> terms);

}  // namespace backend

}  // namespace gyr
