// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/grouped_biases.hpp"

#include "kernels/base/instances.hpp"
#include "kernels/ops/elementwise.hpp"

namespace gyr {

namespace {

template <class A>
void check(const RowGroups& groups, const GroupMatrices<A>& bias, Index columns) {
  ensure(Index(bias.data.size()) == groups.groups() && bias.rows == columns && bias.columns == 1,
         "grouped bias: {} biases ({},{}) do not fit {} groups and {} columns", bias.data.size(), bias.rows, bias.columns, groups.groups(), columns);
}

template <class A>
Tensor1<A> vector(const GroupMatrices<A>& bias, Index group) {
  return Tensor1<A>(bias.data[std::size_t(group)], bias.rows);
}

}  // namespace

template <class T>
void grouped_add_bias(Device& dev, const RowGroups& groups, const GroupMatrices<const Acc<T>>& bias, Tensor2<T> y) {
  check(groups, bias, y.extent(1));
  if constexpr (std::is_same_v<T, bf16>)
    if (backend::grouped_add_bias(dev, groups, bias, y)) return;
  for_groups(dev, groups, [&](Index g, Index first, Index n) { add_bias<T>(dev, vector(bias, g), 1, rows(y, first, n)); });
}

template <class T>
void grouped_bias_backward(Device& dev, const RowGroups& groups, Matrix<const T> dy, const GroupMatrices<Acc<T>>& db) {
  check(groups, db, dy.columns);
  const Index any = db.first_present();
  if (any == groups.groups()) return;
  if constexpr (std::is_same_v<T, bf16>)
    if (backend::grouped_bias_backward(dev, groups, dy, db)) return;
  for_groups(
      dev, groups,
      [&](Index g, Index first, Index n) {
        if (db.data[std::size_t(g)]) bias_backward<T>(dev, dy.block(first, n, 0, dy.columns), 1, vector(db, g));
      },
      any);
}

template <class T>
void grouped_add_weighted_bias(Device& dev, const RowGroups& groups, Tensor1<const std::int32_t> slot, Tensor2<const Acc<T>> w,
                               const GroupMatrices<const Acc<T>>& bias, Tensor2<T> y) {
  check(groups, bias, y.extent(1));
  if constexpr (std::is_same_v<T, bf16>)
    if (backend::grouped_add_weighted_bias(dev, groups, slot, w, bias, y)) return;
  for_groups(dev, groups,
             [&](Index g, Index first, Index n) { add_weighted_bias<T>(dev, rows(slot, first, n), w, vector(bias, g), rows(y, first, n)); });
}

template <class T>
void grouped_weighted_bias_backward(Device& dev, const RowGroups& groups, Tensor1<const std::int32_t> slot, Tensor2<const T> dy,
                                    Tensor2<const Acc<T>> w, const GroupMatrices<const Acc<T>>& bias, Tensor2<Acc<T>> dw, Tensor2<T> terms) {
  check(groups, bias, dy.extent(1));
  if constexpr (std::is_same_v<T, bf16>)
    if (backend::grouped_weighted_bias_backward(dev, groups, slot, dy, w, bias, dw, terms)) return;
  for_groups(dev, groups, [&](Index g, Index first, Index n) {
    weighted_bias_backward<T>(dev, rows(slot, first, n), rows(dy, first, n), w, vector(bias, g), dw, rows(terms, first, n));
  });
}

#define GYR_GROUPED_BIASES(T)                                                                                                                      \
  template void grouped_add_bias<T>(Device&, const RowGroups&, const GroupMatrices<const Acc<T>>&, Tensor2<T>);                                    \
  template void grouped_bias_backward<T>(Device&, const RowGroups&, Matrix<const T>, const GroupMatrices<Acc<T>>&);                                \
  template void grouped_add_weighted_bias<T>(Device&, const RowGroups&, Tensor1<const std::int32_t>, Tensor2<const Acc<T>>,                        \
                                             const GroupMatrices<const Acc<T>>&, Tensor2<T>);                                                      \
  template void grouped_weighted_bias_backward<T>(Device&, const RowGroups&, Tensor1<const std::int32_t>, Tensor2<const T>, Tensor2<const Acc<T>>, \
                                                  const GroupMatrices<const Acc<T>>&, Tensor2<Acc<T>>, Tensor2<T>);
GYR_SCALARS(GYR_GROUPED_BIASES)

}  // namespace gyr
