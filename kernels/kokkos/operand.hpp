// SPDX-License-Identifier: BSD-3-Clause
// Blocks of numbers as the matrix library multiplies them. Operands are of a type P: T itself where the processor multiplies it, else Acc<T>;
// results are of Acc<T>. Blocks that are of that type already stay where they are, others are copied to scratch.
#pragma once

#include "kernels/kokkos/onednn.hpp"
#include "kernels/kokkos/rows.hpp"

namespace gyr {

// body of std::type_identity<P>, the type of operands for tensors of T on this processor.
template <class T, class Body>
void with_operands(const Device& dev, const Body& body) {
  if constexpr (std::is_same_v<T, bf16>)
    if (multiplies_bf16() && dev.library != GemmLibrary::cblas) return body(std::type_identity<bf16>{});
  body(std::type_identity<Acc<T>>{});
}

// Scratch for a copy as P of a block of X with up to (rows, columns); empty where none is needed.
template <class P, class X>
Tensor2<P> room_for(Device& dev, Index rows, Index columns) {
  if constexpr (std::is_same_v<P, X>) return {};
  else return dev.scratch.tensor<P>(rows, columns);
}

// The part of the room that a block of x's extents takes.
template <class P>
Matrix<P> part_of(Tensor2<P> room, Index rows, Index columns) {
  return {room.data(), rows, columns, columns};
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

// x as an operand.
template <class P, class X>
Matrix<const P> operand(Device& dev, Matrix<const X> x, Tensor2<P> room) {
  if constexpr (std::is_same_v<P, X>) {
    return x;
  } else {
    const auto to = part_of(room, x.rows, x.columns);
    copy_block(dev, x, to);
    return to;
  }
}
template <class P, class X>
Matrix<const P> operand(Device& dev, Matrix<const X> x) {
  return operand<P, X>(dev, x, room_for<P, X>(dev, x.rows, x.columns));
}

// Where products for y go; `deliver` rounds them into y if that was not y itself.
template <class T>
Matrix<Acc<T>> target(Matrix<T> y, Tensor2<Acc<T>> room) {
  if constexpr (std::is_same_v<T, Acc<T>>) return y;
  else return part_of(room, y.rows, y.columns);
}
template <class T>
void deliver(Device& dev, Matrix<const Acc<T>> from, Matrix<T> y) {
  if constexpr (!std::is_same_v<T, Acc<T>>) copy_block(dev, from, y);
}

}  // namespace gyr
