// SPDX-License-Identifier: BSD-3-Clause
// Biases of rows that come in groups (row_groups.hpp), each group with a bias of its own, which is a matrix (N,1) of one column: those of experts. As
// grouped_gemm.hpp has it, kernels find the rows of groups themselves or the host tells them one by one.
#pragma once

#include "kernels/ops/expert_rows.hpp"
#include "kernels/ops/grouped_gemm.hpp"

namespace gyr {

// y(p) += b
template <class T>
void grouped_add_bias(Device&, const RowGroups&, const GroupMatrices<const Acc<T>>& bias, Tensor2<T> y /*(R,N)*/);
// db += the sum of dy(p), of every group that has one.
template <class T>
void grouped_bias_backward(Device&, const RowGroups&, Matrix<const T> dy /*(R,N)*/, const GroupMatrices<Acc<T>>& db);

// y(p) += w(slot(p)) b, and what expert_rows.hpp makes of its gradient.
template <class T>
void grouped_add_weighted_bias(Device&, const RowGroups&, Tensor1<const std::int32_t> slot /*(R)*/, Tensor2<const Acc<T>> w,
                               const GroupMatrices<const Acc<T>>& bias, Tensor2<T> y);
template <class T>
void grouped_weighted_bias_backward(Device&, const RowGroups&, Tensor1<const std::int32_t> slot, Tensor2<const T> dy, Tensor2<const Acc<T>> w,
                                    const GroupMatrices<const Acc<T>>& bias, Tensor2<Acc<T>> dw, Tensor2<T> terms);

// What a backend has kernels for: false, with nothing done, where has_grouped_kernels() says that there are none.
namespace backend {
bool grouped_add_bias(Device&, const RowGroups&, const GroupMatrices<const float>& bias, Tensor2<bf16> y);
bool grouped_bias_backward(Device&, const RowGroups&, Matrix<const bf16> dy, const GroupMatrices<float>& db);
bool grouped_add_weighted_bias(Device&, const RowGroups&, Tensor1<const std::int32_t> slot, Tensor2<const float> w,
                               const GroupMatrices<const float>& bias, Tensor2<bf16> y);
bool grouped_weighted_bias_backward(Device&, const RowGroups&, Tensor1<const std::int32_t> slot, Tensor2<const bf16> dy, Tensor2<const float> w,
                                    const GroupMatrices<const float>& bias, Tensor2<float> dw, Tensor2<bf16> terms);
}  // namespace backend

}  // namespace gyr
