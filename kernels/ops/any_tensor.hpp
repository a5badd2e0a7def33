// SPDX-License-Identifier: BSD-3-Clause
// Tensors whose scalar is known at run time only, for those who move numbers and do not compute with them.
#pragma once

#include "kernels/device/device.hpp"

namespace gyr {

inline void require_dtype(DType is, DType wanted) { ensure(is == wanted, "{} taken for {}", name_of(is), name_of(wanted)); }

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
  // As the tensor that it is; an internal error where it is one of other numbers.
  template <class S>
  Tensor1<S> as() const {
    require_dtype(dtype, dtype_of<std::remove_const_t<S>>());
    return Tensor1<S>(static_cast<S*>(data), size);
  }
};

// The same in rows, one behind the other.
struct AnyTensor2 {
  void* data = nullptr;
  DType dtype = DType::f32;
  Index rows = 0, columns = 0;

  AnyTensor2() = default;
  AnyTensor2(void* data, DType dtype, Index rows, Index columns) : data(data), dtype(dtype), rows(rows), columns(columns) {}
  template <class S>
  AnyTensor2(const Tensor2<S>& x) : data(x.data()), dtype(dtype_of<S>()), rows(Index(x.extent(0))), columns(Index(x.extent(1))) {}

  AnyTensor flat() const { return {data, dtype, rows * columns}; }
  template <class S>
  Tensor2<S> as() const {
    require_dtype(dtype, dtype_of<std::remove_const_t<S>>());
    return Tensor2<S>(static_cast<S*>(data), rows, columns);
  }
};
// Elements [first, first + count), or rows.
AnyTensor rows(const AnyTensor&, Index first, Index count);
AnyTensor2 rows(const AnyTensor2&, Index first, Index count);

// A Matrix of any scalar, to be read.
struct AnyMatrix {
  const void* data = nullptr;
  DType dtype = DType::f32;
  Index rows = 0, columns = 0, stride = 0;

  AnyMatrix() = default;
  template <class S>
  AnyMatrix(const Matrix<S>& x) : data(x.data), dtype(dtype_of<std::remove_const_t<S>>()), rows(x.rows), columns(x.columns), stride(x.stride) {}
  template <class S>
  AnyMatrix(const Tensor2<S>& x) : AnyMatrix(Matrix<S>(x)) {}
  AnyMatrix(const AnyTensor2& x) : data(x.data), dtype(x.dtype), rows(x.rows), columns(x.columns), stride(x.columns) {}
};

AnyMatrix rows(const AnyMatrix&, Index first, Index count);

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
  return with_type(x.dtype, [&]<class S>(std::type_identity<S>) { return f(x.as<S>()); });
}

// A new Typed<S>(arguments...) for the scalar S of a model, under the interface that does not know it.
template <class Interface, template <class> class Typed, class... Arguments>
std::unique_ptr<Interface> make_typed(DType dtype, Arguments&&... arguments) {
  return with_type(dtype, [&]<class S>(std::type_identity<S>) -> std::unique_ptr<Interface> {
    return std::make_unique<Typed<S>>(std::forward<Arguments>(arguments)...);
  });
}

// The next numbers of an arena.
AnyTensor take(Arena&, DType, Index size);
AnyTensor2 take(Arena&, DType, Index rows, Index columns);

void fill(Device&, const AnyTensor&, double value);
// to = from, of one shape, between the scalars of one model.
void convert(Device&, const AnyTensor2& from, const AnyTensor2& to);

// The bytes of a tensor to another of the same size. Between device and host both end before they return.
void copy_on_device(Device&, const AnyTensor& from, const AnyTensor& to);
void copy_to_host(const AnyTensor& from, void* to);
void copy_to_device(const void* from, const AnyTensor& to);

}  // namespace gyr
