// SPDX-License-Identifier: BSD-3-Clause
// Grouped GEMMs: the three GEMMs of linear layers whose rows come in groups (row_groups.hpp), each group with its own weight, for instance one per
// expert.
//   R rows, G groups, w (N,K) of each group. Rows after the last group are neither read nor written.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/ops/gemm.hpp"
#include "kernels/ops/int8_matrix.hpp"
#include "kernels/ops/row_groups.hpp"

namespace gyr {

// Matrices of all groups: all of one shape, with contiguous rows.
template <class T>
struct GroupMatrices {
  std::vector<T*> data;  // pointer to each group's matrix, shape (G); null for a group without a matrix
  Index rows = 0, columns = 0;

  Matrix<T> operator[](Index group) const { return {data[std::size_t(group)], rows, columns, columns}; }
  // Index of the first group that has a matrix, or the number of groups if none has.
  Index first_present() const {
    return std::find_if(data.begin(), data.end(), [](const T* p) { return p != nullptr; }) - data.begin();
  }
};

// True if a backend kernel finds the rows of each group itself, for weights of this type and `even` rows per group in
// an even distribution. Otherwise the host launches a GEMM of gemm.hpp for each group that has rows, and has to know
// the counts.
bool has_grouped_kernels(DType, Index even);

// y = x w'
template <class T>
void grouped_linear(Device&, const RowGroups&, Tensor2<const T> x /*(R,K)*/, const GroupMatrices<const T>& w, Tensor2<T> y /*(R,N)*/);
// The same with int8 weights, one GEMM per group.
template <class T>
void grouped_linear(Device&, const RowGroups&, Tensor2<const T> x, const std::vector<Int8Matrix>& w, Tensor2<T> y);
// dx = dy w
template <class T>
void grouped_linear_backward_input(Device&, const RowGroups&, Tensor2<const T> dy /*(R,N)*/, const GroupMatrices<const T>& w,
                                   Tensor2<T> dx /*(R,K)*/);
// dw += dy' x of every group whose dw is not null.
template <class T>
void grouped_linear_backward_weight(Device&, const RowGroups&, Matrix<const T> dy /*(R,N)*/, Tensor2<const T> x /*(R,K)*/,
                                    const GroupMatrices<Acc<T>>& dw);

// Grouped kernels of the backend. They return false and do nothing if has_grouped_kernels() is false.
namespace backend {
bool grouped_linear(Device&, const RowGroups&, Tensor2<const bf16> x, const GroupMatrices<const bf16>& w, Tensor2<bf16> y);
bool grouped_linear_backward_input(Device&, const RowGroups&, Tensor2<const bf16> dy, const GroupMatrices<const bf16>& w, Tensor2<bf16> dx);
bool grouped_linear_backward_weight(Device&, const RowGroups&, Matrix<const bf16> dy, Tensor2<const bf16> x, const GroupMatrices<float>& dw);
}  // namespace backend

}  // namespace gyr
