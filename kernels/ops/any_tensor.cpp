// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/ops/any_tensor.hpp"

#include "kernels/ops/elementwise.hpp"

namespace gyr {

AnyTensor rows(const AnyTensor& x, Index first, Index count) { return {static_cast<char*>(x.data) + first * size_of(x.dtype), x.dtype, count}; }

AnyTensor2 rows(const AnyTensor2& x, Index first, Index count) {
  return {static_cast<char*>(x.data) + first * x.columns * size_of(x.dtype), x.dtype, count, x.columns};
}

AnyMatrix rows(const AnyMatrix& x, Index first, Index count) {
  AnyMatrix some = x;
  some.data = static_cast<const char*>(x.data) + first * x.stride * size_of(x.dtype), some.rows = count;
  return some;
}

AnyTensor take(Arena& arena, DType dtype, Index size) { return {arena.push(size * size_of(dtype)), dtype, size}; }

AnyTensor2 take(Arena& arena, DType dtype, Index rows, Index columns) { return {arena.push(rows * columns * size_of(dtype)), dtype, rows, columns}; }

void fill(Device& dev, const AnyTensor& x, double value) {
  with_type(x.dtype, [&]<class S>(std::type_identity<S>) { fill<S>(dev, x.as<S>(), value); });
}

void convert(Device& dev, const AnyTensor2& from, const AnyTensor2& to) {
  with_type(from.dtype, [&]<class S>(std::type_identity<S>) {
    with_type(to.dtype, [&]<class T>(std::type_identity<T>) {
      if constexpr (std::is_same_v<Acc<S>, Acc<T>>) convert<S, T>(dev, Matrix<const S>(from.as<const S>()), Matrix<T>(to.as<T>()));
      else fail(Exit::internal, "there is no conversion from {} to {}", name_of(from.dtype), name_of(to.dtype));
    });
  });
}

void copy_on_device(Device& dev, const AnyTensor& from, const AnyTensor& to) { backend::copy_on_device(dev.queue, from.data, to.data, to.bytes()); }

void copy_to_host(const AnyTensor& from, void* to) { backend::copy_to_host(from.data, to, from.bytes()); }

void copy_to_device(const void* from, const AnyTensor& to) { backend::copy_to_device(from, to.data, to.bytes()); }

}  // namespace gyr
