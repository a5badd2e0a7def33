// SPDX-License-Identifier: BSD-3-Clause
// Conversion of matrix blocks to GEMM operands. Operands have a type P: T itself if the processor multiplies it,
// otherwise Acc<T>. Results have type Acc<T>. Blocks that already have type P are used in place, and others are copied
// to scratch.
#pragma once

#include "kernels/kokkos/onednn.hpp"
#include "kernels/kokkos/rows.hpp"

namespace gyr {

// Calls body(std::type_identity<P>), where P is the operand type for tensors of T on this processor.
template <class T, class Body>
void with_operands(const Device& dev, const Body& body) {
  if constexpr (std::is_same_v<T, bf16>)
    if (multiplies_bf16() && dev.library != GemmLibrary::cblas) return body(std::type_identity<bf16>{});
  body(std::type_identity<Acc<T>>{});
}

// Scratch for a copy with type P of a block of X, up to (rows, columns). Empty if no copy is needed.
template <class P, class X>
Tensor2<P> scratch_for(Device& dev, Index rows, Index columns) {
  if constexpr (std::is_same_v<P, X>) return {};
  else return dev.scratch.tensor<P>(rows, columns);
}

// Part of `scratch` with the given extents, contiguous.
template <class P>
Matrix<P> part_of(Tensor2<P> scratch, Index rows, Index columns) {
  return {scratch.data(), rows, columns, columns};
}

template <class X, class P>
void copy_block(Device& dev, Matrix<const X> from, Matrix<P> to) {
  if (!dev.dry_run())
    for_rows(
        dev, "copy_block", from.rows, KOKKOS_LAMBDA(const Index r) {
          const X* const in = from.row(r);
          P* const out = to.row(r);
#pragma GCC ivdep
          for (Index c = 0; c < from.columns; ++c) out[c] = P(in[c]);
        });
}

// Returns x as an operand: x itself, or a copy in `scratch` if its type is not P.
template <class P, class X>
Matrix<const P> operand(Device& dev, Matrix<const X> x, Tensor2<P> scratch) {
  if constexpr (std::is_same_v<P, X>) {
    return x;
  } else {
    const auto to = part_of(scratch, x.rows, x.columns);
    copy_block(dev, x, to);
    return to;
  }
}
template <class P, class X>
Matrix<const P> operand(Device& dev, Matrix<const X> x) {
  return operand<P, X>(dev, x, scratch_for<P, X>(dev, x.rows, x.columns));
}

// target: where GEMMs write their results for y, either y itself or `scratch`. deliver: rounds these results into y if
// they are in `scratch`.
template <class T>
Matrix<Acc<T>> target(Matrix<T> y, Tensor2<Acc<T>> scratch) {
  if constexpr (std::is_same_v<T, Acc<T>>) return y;
  else return part_of(scratch, y.rows, y.columns);
}
template <class T>
void deliver(Device& dev, Matrix<const Acc<T>> from, Matrix<T> y) {
  if constexpr (!std::is_same_v<T, Acc<T>>) copy_block(dev, from, y);
}

}  // namespace gyr
