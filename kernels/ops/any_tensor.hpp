// SPDX-License-Identifier: BSD-3-Clause
// Tensors whose scalar type is known only at run time, for code that moves data without computing with it.
#pragma once

#include "kernels/device/device.hpp"

namespace gyr {

inline void require_dtype(DType is, DType wanted) { ensure(is == wanted, "a tensor of type {} is accessed as {}", name_of(is), name_of(wanted)); }

// Contiguous elements in device memory. data == nullptr: absent.
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
  // Typed view of this tensor; an internal error if S is not its type.
  template <class S>
  Tensor1<S> as() const {
    require_dtype(dtype, dtype_of<std::remove_const_t<S>>());
    return Tensor1<S>(static_cast<S*>(data), size);
  }
};

// Row-major matrix with contiguous rows, whose scalar type is known only at run time.
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
// Elements [first, first + count) of a vector, or rows [first, first + count) of a matrix.
AnyTensor rows(const AnyTensor&, Index first, Index count);
AnyTensor2 rows(const AnyTensor2&, Index first, Index count);

// Read-only Matrix whose scalar type is known only at run time.
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

// Calls f(std::type_identity<S>()) with the floating-point type S that `dtype` names; other types are an internal
// error.
template <class F>
decltype(auto) with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64: return f(std::type_identity<double>());
    case DType::f32: return f(std::type_identity<float>());
    case DType::bf16: return f(std::type_identity<bf16>());
    default: fail(Exit::internal, "{} is not a floating-point type", name_of(dtype));
  }
}

// Calls f(x.as<S>()) with the type S of x.
template <class F>
decltype(auto) with_type(const AnyTensor& x, F&& f) {
  return with_type(x.dtype, [&]<class S>(std::type_identity<S>) { return f(x.as<S>()); });
}

// Creates Typed<S>(arguments...) for the scalar type S of a model and returns it as the Interface that does not depend
// on S.
template <class Interface, template <class> class Typed, class... Arguments>
std::unique_ptr<Interface> make_typed(DType dtype, Arguments&&... arguments) {
  return with_type(dtype, [&]<class S>(std::type_identity<S>) -> std::unique_ptr<Interface> {
    return std::make_unique<Typed<S>>(std::forward<Arguments>(arguments)...);
  });
}

// Allocates the next elements of an arena.
AnyTensor take(Arena&, DType, Index size);
AnyTensor2 take(Arena&, DType, Index rows, Index columns);

void fill(Device&, const AnyTensor&, double value);
// to = from, converted between types that have the same accumulation type; both have the same shape.
void convert(Device&, const AnyTensor2& from, const AnyTensor2& to);

// Copy all bytes of a tensor to another of the same size. Copies between device and host are complete on return.
void copy_on_device(Device&, const AnyTensor& from, const AnyTensor& to);
void copy_to_host(const AnyTensor& from, void* to);
void copy_to_device(const void* from, const AnyTensor& to);

}  // namespace gyr
