// SPDX-License-Identifier: BSD-3-Clause
// Queue and memory of Kokkos' default execution space, which has a single queue.
#include "kernels/device/queue.hpp"

#include <sys/mman.h>

#include "kernels/base/tensor.hpp"
#include "kernels/device/transport.hpp"
#include "kernels/device/upload.hpp"

namespace gyr {

namespace {

using Bytes = Tensor1<std::byte>;
using HostBytes = Kokkos::View<std::byte*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

// Requests large pages if the system offers them. Arenas are read from end to end, and address translation takes time.
void prefer_large_pages([[maybe_unused]] void* memory, [[maybe_unused]] Index bytes) {
#ifdef MADV_HUGEPAGE
  constexpr std::intptr_t page = 4096;
  const auto begin = reinterpret_cast<std::intptr_t>(memory), first = (begin + page - 1) / page * page, length = begin + bytes - first;
  if (length > 0) madvise(reinterpret_cast<void*>(first), std::size_t(length), MADV_HUGEPAGE);
#endif
}

std::byte* bytes_at(const void* place) { return static_cast<std::byte*>(const_cast<void*>(place)); }

}  // namespace

struct Queue::State {};

Queue::Queue(bool) {}
void Queue::fence() const { Space().fence(); }

namespace backend {

std::string name() { return "kokkos"; }

bool on_gpu() { return !std::is_same_v<Space, Kokkos::DefaultHostExecutionSpace>; }

bool host_reads_memory() { return Kokkos::SpaceAccessibility<Kokkos::HostSpace, Space::memory_space>::accessible; }

void* take_memory(Index bytes) {
  try {
    void* const given = Kokkos::kokkos_malloc<Space::memory_space>("arena", std::size_t(bytes));
    if (host_reads_memory()) prefer_large_pages(given, bytes);
    return given;
  } catch (const std::exception&) {
    return nullptr;
  }
}
void return_memory(void* memory) { Kokkos::kokkos_free<Space::memory_space>(memory); }

void copy_on_device(const Queue&, const void* from, void* to, Index bytes) {
  Kokkos::deep_copy(Space(), Bytes(bytes_at(to), bytes), Bytes(bytes_at(from), bytes));
}
void copy_to_host(const void* from, void* to, Index bytes) { Kokkos::deep_copy(HostBytes(bytes_at(to), bytes), Bytes(bytes_at(from), bytes)); }
void copy_to_device(const void* from, void* to, Index bytes) { Kokkos::deep_copy(Bytes(bytes_at(to), bytes), HostBytes(bytes_at(from), bytes)); }
void upload(const Queue&, const void* from, void* to, Index bytes) { copy_to_device(from, to, bytes); }

std::unique_ptr<Transport> device_transport(std::unique_ptr<Transport> hosts) { return hosts; }

}  // namespace backend

}  // namespace gyr
