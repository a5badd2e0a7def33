// SPDX-License-Identifier: BSD-3-Clause
// The three products of linear layers for rows that come in groups (row_groups.hpp), each group with a weight of its own: those of experts.
//   R rows, G groups, w (N,K) of each group. Rows behind those of the last group are neither read nor written.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/ops/gemm.hpp"
#include "kernels/ops/int8_matrix.hpp"
#include "kernels/ops/row_groups.hpp"

namespace gyr {

// Matrices of all groups, of one shape; their rows lie one behind the other.
template <class T>
struct GroupMatrices {
  std::vector<T*> data;  // (G); null where a group has none
  Index rows = 0, columns = 0;

  Matrix<T> operator[](Index group) const { return {data[std::size_t(group)], rows, columns, columns}; }
  // The first group that has one; their number where none does.
  Index first_present() const {
    return std::find_if(data.begin(), data.end(), [](const T* p) { return p != nullptr; }) - data.begin();
  }
};

// Whether kernels find the rows of groups themselves, weights being stored in that type and even rows of a group so many. Where they do not, the host
// tells a product of gemm.hpp for each group that has rows, and has to know how many these are.
bool has_grouped_kernels(DType, Index even);

// y = x w'
template <class T>
void grouped_linear(Device&, const RowGroups&, Tensor2<const T> x /*(R,K)*/, const GroupMatrices<const T>& w, Tensor2<T> y /*(R,N)*/);
// The same of weights in int8, one by one.
template <class T>
void grouped_linear(Device&, const RowGroups&, Tensor2<const T> x, const std::vector<Int8Matrix>& w, Tensor2<T> y);
// dx = dy w
template <class T>
void grouped_linear_backward_input(Device&, const RowGroups&, Tensor2<const T> dy /*(R,N)*/, const GroupMatrices<const T>& w,
                                   Tensor2<T> dx /*(R,K)*/);
// dw += dy' x of every group that has one.
template <class T>
void grouped_linear_backward_weight(Device&, const RowGroups&, Matrix<const T> dy /*(R,N)*/, Tensor2<const T> x /*(R,K)*/,
                                    const GroupMatrices<Acc<T>>& dw);

// What a backend has kernels for: false, with nothing done, where has_grouped_kernels() says that there are none.
namespace backend {
bool grouped_linear(Device&, const RowGroups&, Tensor2<const bf16> x, const GroupMatrices<const bf16>& w, Tensor2<bf16> y);
bool grouped_linear_backward_input(Device&, const RowGroups&, Tensor2<const bf16> dy, const GroupMatrices<const bf16>& w, Tensor2<bf16> dx);
bool grouped_linear_backward_weight(Device&, const RowGroups&, Matrix<const bf16> dy, Tensor2<const bf16> x, const GroupMatrices<float>& dw);
}  // namespace backend

}  // namespace gyr
