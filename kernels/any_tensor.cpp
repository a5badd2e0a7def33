// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/any_tensor.hpp"

namespace gyr {

namespace {

template <class Byte>
using OnHost = Kokkos::View<Byte*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

Tensor1<std::byte> bytes_of(const AnyTensor& x) { return Tensor1<std::byte>(static_cast<std::byte*>(x.data), x.bytes()); }

}  // namespace

void copy_to_host(const AnyTensor& from, void* to) {
  Kokkos::deep_copy(OnHost<std::byte>(static_cast<std::byte*>(to), from.bytes()), bytes_of(from));
}

void copy_to_device(const void* from, const AnyTensor& to) {
  Kokkos::deep_copy(bytes_of(to), OnHost<const std::byte>(static_cast<const std::byte*>(from), to.bytes()));
}

}  // namespace gyr
