// SPDX-License-Identifier: BSD-3-Clause
// Tensors whose scalar is known at run time only, for those who move numbers and do not compute with them.
#pragma once

#include "kernels/tensor.hpp"

namespace gyr {

// Numbers one behind the other in the device's memory. Without data: absent.
struct AnyTensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  Index size = 0;

  AnyTensor() = default;
  AnyTensor(void* data, DType dtype, Index size) : data(data), dtype(dtype), size(size) {}
  template <class S>
  AnyTensor(const Tensor1<S>& x) : data(x.data()), dtype(dtype_of<S>()), size(Index(x.extent(0))) {}

  explicit operator bool() const { return data != nullptr; }
  Index bytes() const { return size * size_of(dtype); }
};

// A Matrix of any scalar, to be read.
struct AnyMatrix {
  const void* data = nullptr;
  DType dtype = DType::f32;
  Index rows = 0, columns = 0, stride = 0;

  AnyMatrix() = default;
  template <class S>
  AnyMatrix(const Matrix<const S>& x) : data(x.data), dtype(dtype_of<S>()), rows(x.rows), columns(x.columns), stride(x.stride) {}
};

// f(std::type_identity<S>()) with the floating-point type S of these numbers.
template <class F>
decltype(auto) with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64: return f(std::type_identity<double>());
    case DType::f32: return f(std::type_identity<float>());
    case DType::bf16: return f(std::type_identity<bf16>());
    default: fail(Exit::internal, "{} where floating-point numbers are wanted", name_of(dtype));
  }
}

// f(x) with x as the tensor that it is.
template <class F>
decltype(auto) with_type(const AnyTensor& x, F&& f) {
  return with_type(x.dtype, [&]<class S>(std::type_identity<S>) { return f(Tensor1<S>(static_cast<S*>(x.data), x.size)); });
}

// The bytes of a tensor between the device and the host. Both end before they return.
void copy_to_host(const AnyTensor& from, void* to);
void copy_to_device(const void* from, const AnyTensor& to);

}  // namespace gyr
