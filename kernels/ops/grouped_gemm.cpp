// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/grouped_gemm.hpp"

#include "kernels/base/instances.hpp"

namespace gyr {

namespace {

// `outputs`, `inputs`: outputs and inputs of the linear layers, or their gradients.
template <class T>
void check(const RowGroups& groups, Matrix<const T> outputs, Matrix<const T> inputs, std::size_t matrices, Index n, Index k) {
  ensure(Index(matrices) == groups.groups() && outputs.rows == inputs.rows && outputs.columns == n && inputs.columns == k,
         "grouped GEMM: {} matrices ({},{}) do not fit {} groups, outputs ({},{}) and inputs ({},{})", matrices, n, k, groups.groups(), outputs.rows,
         outputs.columns, inputs.rows, inputs.columns);
}

}  // namespace

template <class T>
void grouped_linear(Device& dev, const RowGroups& groups, Tensor2<const T> x, const GroupMatrices<const T>& w, Tensor2<T> y) {
  check<T>(groups, Tensor2<const T>(y), x, w.data.size(), w.rows, w.columns);
  if constexpr (std::is_same_v<T, bf16>)
    if (backend::grouped_linear(dev, groups, x, w, y)) return;
  for_groups(dev, groups, [&](Index g, Index first, Index n) { linear<T>(dev, rows(x, first, n), w[g], rows(y, first, n)); });
}

template <class T>
void grouped_linear(Device& dev, const RowGroups& groups, Tensor2<const T> x, const std::vector<Int8Matrix>& w, Tensor2<T> y) {
  check<T>(groups, Tensor2<const T>(y), x, w.size(), w[0].rows, w[0].columns);
  for_groups(dev, groups, [&](Index g, Index first, Index n) { linear<T, T>(dev, rows(x, first, n), w[std::size_t(g)], rows(y, first, n)); });
}

template <class T>
void grouped_linear_backward_input(Device& dev, const RowGroups& groups, Tensor2<const T> dy, const GroupMatrices<const T>& w, Tensor2<T> dx) {
  check<T>(groups, dy, Tensor2<const T>(dx), w.data.size(), w.rows, w.columns);
  if constexpr (std::is_same_v<T, bf16>)
    if (backend::grouped_linear_backward_input(dev, groups, dy, w, dx)) return;
  for_groups(dev, groups, [&](Index g, Index first, Index n) { linear_backward_input<T>(dev, rows(dy, first, n), w[g], rows(dx, first, n)); });
}

template <class T>
void grouped_linear_backward_weight(Device& dev, const RowGroups& groups, Matrix<const T> dy, Tensor2<const T> x, const GroupMatrices<Acc<T>>& dw) {
  check<T>(groups, dy, x, dw.data.size(), dw.rows, dw.columns);
  const Index any = dw.first_present();
  if (any == groups.groups()) return;
  if constexpr (std::is_same_v<T, bf16>)
    if (backend::grouped_linear_backward_weight(dev, groups, dy, x, dw)) return;
  for_groups(
      dev, groups,
      [&](Index g, Index first, Index n) {
        if (dw.data[std::size_t(g)]) linear_backward_weight<T>(dev, dy.block(first, n, 0, dy.columns), rows(x, first, n), dw[g]);
      },
      any);
}

#define GYR_GROUPED_GEMM(T)                                                                                                               \
  template void grouped_linear<T>(Device&, const RowGroups&, Tensor2<const T>, const GroupMatrices<const T>&, Tensor2<T>);                \
  template void grouped_linear<T>(Device&, const RowGroups&, Tensor2<const T>, const std::vector<Int8Matrix>&, Tensor2<T>);               \
  template void grouped_linear_backward_input<T>(Device&, const RowGroups&, Tensor2<const T>, const GroupMatrices<const T>&, Tensor2<T>); \
  template void grouped_linear_backward_weight<T>(Device&, const RowGroups&, Matrix<const T>, Tensor2<const T>, const GroupMatrices<Acc<T>>&);
GYR_SCALARS(GYR_GROUPED_GEMM)

}  // namespace gyr
