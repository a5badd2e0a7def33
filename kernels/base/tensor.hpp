// SPDX-License-Identifier: BSD-3-Clause
// Tensors are unmanaged Kokkos views of arena memory. A Matrix is a block of columns of a tensor.
#pragma once

#include <type_traits>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/base/scalar.hpp"

namespace gyr {

using Space = Kokkos::DefaultExecutionSpace;

namespace detail {
template <class Data>
using View = Kokkos::View<Data, Kokkos::LayoutRight, Space::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
}

// Row-major tensors. An empty tensor (data() == nullptr) means "absent" where a function allows it.
template <class T>
using Tensor1 = detail::View<T*>;
template <class T>
using Tensor2 = detail::View<T**>;
template <class T>
using Tensor3 = detail::View<T***>;
template <class T>
using Tensor4 = detail::View<T****>;

// Row-major matrix whose rows are `stride` elements apart: a full Tensor2 or some of its columns. (r, c) is row r,
// column c.
template <class T>
struct Matrix {
  T* data = nullptr;
  Index rows = 0, columns = 0, stride = 0;

  Matrix() = default;
  GYR_FUNCTION Matrix(T* data, Index rows, Index columns, Index stride) : data(data), rows(rows), columns(columns), stride(stride) {}
  template <class U>
  requires std::is_convertible_v<U (*)[], T (*)[]> Matrix(const Tensor2<U>& x) : Matrix(x.data(), x.extent(0), x.extent(1), x.extent(1)) {}
  template <class U>
  requires std::is_convertible_v<U (*)[], T (*)[]> Matrix(const Matrix<U>& x) : Matrix(x.data, x.rows, x.columns, x.stride) {}

  GYR_FUNCTION T& operator()(Index r, Index c) const { return data[r * stride + c]; }
  GYR_FUNCTION T* row(Index r) const { return data + r * stride; }
  Matrix block(Index first_row, Index n_rows, Index first_column, Index n_columns) const {
    return {data + first_row * stride + first_column, n_rows, n_columns, stride};
  }
};

// Columns [first, first + count) of x.
template <class T>
Matrix<T> columns(Matrix<T> x, Index first, Index count) {
  return x.block(0, x.rows, first, count);
}
template <class T>
Matrix<T> columns(const Tensor2<T>& x, Index first, Index count) {
  return columns(Matrix<T>(x), first, count);
}

// Rows [first, first + count) of x.
template <class T>
Tensor2<T> rows(const Tensor2<T>& x, Index first, Index count) {
  return Tensor2<T>(x.data() + first * Index(x.extent(1)), count, x.extent(1));
}
template <class T>
Tensor1<T> rows(const Tensor1<T>& x, Index first, Index count) {
  return Tensor1<T>(x.data() + first, count);
}

// All elements of a tensor in storage order.
template <class View>
auto flat(const View& x) {
  return Tensor1<typename View::value_type>(x.data(), x.span());
}

using Shape = std::vector<Index>;
inline Index elements(const Shape& shape) {
  Index n = 1;
  for (const Index extent : shape) n *= extent;
  return n;
}

}  // namespace gyr
