// SPDX-License-Identifier: BSD-3-Clause
// Blocks of T as the matrix library multiplies them: in place where T is its own accumulator, else as copies of Acc<T>
// in scratch.
#pragma once

#include "kernels/kokkos/rows.hpp"

namespace gyr {

// Scratch for the copy of a block of up to (rows, columns); empty where none is needed.
template <class T>
Tensor2<Acc<T>> room_for(Device& dev, Index rows, Index columns) {
  if constexpr (std::is_same_v<T, Acc<T>>) return {};
  else return dev.scratch.tensor<Acc<T>>(rows, columns);
}

// The part of the room that a block of x's extents takes.
template <class A>
Matrix<A> part_of(Tensor2<A> room, Index rows, Index columns) {
  return {room.data(), rows, columns, columns};
}

// x as an operand.
template <class T>
Matrix<const Acc<T>> widened(Device& dev, Matrix<const T> x, Tensor2<Acc<T>> room) {
  if constexpr (std::is_same_v<T, Acc<T>>) {
    return x;
  } else {
    const auto to = part_of(room, x.rows, x.columns);
    if (!dev.dry_run())
      for_rows(
          dev, "widen", x.rows, KOKKOS_LAMBDA(const Index r) {
            for (Index c = 0; c < x.columns; ++c) to(r, c) = Acc<T>(x(r, c));
          });
    return to;
  }
}

// Where products for y go; `deliver` rounds them into y if that was not y itself.
template <class T>
Matrix<Acc<T>> target(Matrix<T> y, Tensor2<Acc<T>> room) {
  if constexpr (std::is_same_v<T, Acc<T>>) return y;
  else return part_of(room, y.rows, y.columns);
}
template <class T>
void deliver(Device& dev, Matrix<const Acc<T>> from, Matrix<T> y) {
  if constexpr (!std::is_same_v<T, Acc<T>>)
    if (!dev.dry_run())
      for_rows(
          dev, "narrow", y.rows, KOKKOS_LAMBDA(const Index r) {
            for (Index c = 0; c < y.columns; ++c) y(r, c) = T(from(r, c));
          });
}

}  // namespace gyr
