// SPDX-License-Identifier: BSD-3-Clause
// Stubs of the grouped GEMM kernels. Hosts know the number of rows of each group, so ordinary kernels run for each
// group.
#include "kernels/ops/grouped_biases.hpp"

namespace gyr {

bool has_grouped_kernels(DType, Index) { return false; }

namespace backend {
bool grouped_linear(Device&, const RowGroups&, Tensor2<const bf16>, const GroupMatrices<const bf16>&, Tensor2<bf16>) { return false; }
bool grouped_linear_backward_input(Device&, const RowGroups&, Tensor2<const bf16>, const GroupMatrices<const bf16>&, Tensor2<bf16>) { return false; }
bool grouped_linear_backward_weight(Device&, const RowGroups&, Matrix<const bf16>, Tensor2<const bf16>, const GroupMatrices<float>&) { return false; }

bool grouped_add_bias(Device&, const RowGroups&, const GroupMatrices<const float>&, Tensor2<bf16>) { return false; }
bool grouped_bias_backward(Device&, const RowGroups&, Matrix<const bf16>, const GroupMatrices<float>&) { return false; }
bool grouped_add_weighted_bias(Device&, const RowGroups&, Tensor1<const std::int32_t>, Tensor2<const float>, const GroupMatrices<const float>&,
                               Tensor2<bf16>) {
  return false;
}
bool grouped_weighted_bias_backward(Device&, const RowGroups&, Tensor1<const std::int32_t>, Tensor2<const bf16>, Tensor2<const float>,
                                    const GroupMatrices<const float>&, Tensor2<float>, Tensor2<bf16>) {
  return false;
}
}  // namespace backend

}  // namespace gyr
