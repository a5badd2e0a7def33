// SPDX-License-Identifier: BSD-3-Clause
// Biases of grouped rows (row_groups.hpp), one bias per group, for instance per expert. A bias is stored as a matrix
// (N,1). As in grouped_gemm.hpp, either a backend kernel finds the rows of each group itself, or the host launches
// one kernel per group.
#pragma once

#include "kernels/ops/expert_rows.hpp"
#include "kernels/ops/grouped_gemm.hpp"

namespace gyr {

// y(p) += b of the row's group
template <class T>
void grouped_add_bias(Device&, const RowGroups&, const GroupMatrices<const Acc<T>>& bias, Tensor2<T> y /*(R,N)*/);
// db += sum of dy(p) over the rows of a group, for every group whose gradient is not null.
template <class T>
void grouped_bias_backward(Device&, const RowGroups&, Matrix<const T> dy /*(R,N)*/, const GroupMatrices<Acc<T>>& db);

// y(p) += w(slot(p)) b of the row's group, and its gradients. slot(p) is the slot of grouped row p, and w the routing
// weights: see expert_rows.hpp.
template <class T>
void grouped_add_weighted_bias(Device&, const RowGroups&, Tensor1<const std::int32_t> slot /*(R)*/, Tensor2<const Acc<T>> w,
                               const GroupMatrices<const Acc<T>>& bias, Tensor2<T> y);
template <class T>
void grouped_weighted_bias_backward(Device&, const RowGroups&, Tensor1<const std::int32_t> slot, Tensor2<const T> dy, Tensor2<const Acc<T>> w,
                                    const GroupMatrices<const Acc<T>>& bias, Tensor2<Acc<T>> dw, Tensor2<T> terms);

// Grouped kernels of the backend. They return false and do nothing if has_grouped_kernels() is false.
namespace backend {
bool grouped_add_bias(Device&, const RowGroups&, const GroupMatrices<const float>& bias, Tensor2<bf16> y);
bool grouped_bias_backward(Device&, const RowGroups&, Matrix<const bf16> dy, const GroupMatrices<float>& db);
bool grouped_add_weighted_bias(Device&, const RowGroups&, Tensor1<const std::int32_t> slot, Tensor2<const float> w,
                               const GroupMatrices<const float>& bias, Tensor2<bf16> y);
bool grouped_weighted_bias_backward(Device&, const RowGroups&, Tensor1<const std::int32_t> slot, Tensor2<const bf16> dy, Tensor2<const float> w,
                                    const GroupMatrices<const float>& bias, Tensor2<float> dw, Tensor2<bf16> terms);
}  // namespace backend

}  // namespace gyr
