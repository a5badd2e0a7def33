// SPDX-License-Identifier: BSD-3-Clause
// Copies between host and device memory with Kokkos. They are synchronous.
#include "kernels/device/host_copies.hpp"

#include <cstdlib>

#include "kernels/base/tensor.hpp"

namespace gyr {

namespace {

constexpr std::size_t alignment = 4096;

template <class FromSpace, class ToSpace>
void copy_now(std::span<const HostCopy> copies) {
  using From = Kokkos::View<const std::byte*, FromSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  using To = Kokkos::View<std::byte*, ToSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  for (const HostCopy& c : copies)
    Kokkos::deep_copy(To(static_cast<std::byte*>(c.to), std::size_t(c.bytes)), From(static_cast<const std::byte*>(c.from), std::size_t(c.bytes)));
}

}  // namespace

struct HostCopies::State {};

bool HostCopies::overlap() { return false; }

HostCopies::HostCopies(const Queue&) {}
HostCopies::~HostCopies() = default;

HostCopies::Ticket HostCopies::out(std::span<const HostCopy> copies) {
  copy_now<Space::memory_space, Kokkos::HostSpace>(copies);
  return 0;
}
HostCopies::Ticket HostCopies::back(std::span<const HostCopy> copies) {
  copy_now<Kokkos::HostSpace, Space::memory_space>(copies);
  return 0;
}
void HostCopies::device_waits(Ticket) {}

namespace backend {

void* allocate_host_memory(Index bytes) { return std::aligned_alloc(alignment, (std::size_t(bytes) + alignment - 1) / alignment * alignment); }
void free_host_memory(void* memory) { std::free(memory); }

}  // namespace backend

}  // namespace gyr
