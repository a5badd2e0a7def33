// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/arena.hpp"

#include <sys/mman.h>

#include <limits>

#ifdef __has_feature  // Clang; GCC defines the macro itself
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace gyr {

namespace {
constexpr Index alignment = 256;
Index aligned(Index bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// To the address sanitizer an arena is one block: it is told which bytes of it are tensors now.
#ifdef __SANITIZE_ADDRESS__
void forbid(const char* bytes, Index count) { ASAN_POISON_MEMORY_REGION(bytes, count); }
void allow(const char* bytes, Index count) { ASAN_UNPOISON_MEMORY_REGION(bytes, count); }
#else
void forbid(const char*, Index) {}
void allow(const char*, Index) {}
#endif
}  // namespace

std::string_view name_of(Memory category) {
  switch (category) {
    case Memory::weights: return "weights";
    case Memory::gradients: return "gradients";
    case Memory::optimizer: return "optimizer";
    case Memory::activations: return "activations";
    case Memory::scratch: return "scratch";
    case Memory::communication: return "communication";
  }
  return "";
}

void Arena::Free::operator()(void* p) const { Kokkos::kokkos_free<Space::memory_space>(p); }

Arena::Arena(Memory category, Index bytes) : category_(category), capacity_(aligned(bytes)) {
  if (bytes == 0) return;
  try {
    memory_.reset(Kokkos::kokkos_malloc<Space::memory_space>("arena", capacity_ + alignment));
  } catch (const std::exception&) {
    fail(Exit::device, "{} bytes for {} are more than this machine has; use more ranks, a smaller micro-batch or a smaller model", bytes,
         name_of(category));
  }
  base_ = reinterpret_cast<char*>(aligned(reinterpret_cast<std::intptr_t>(memory_.get())));
#ifdef MADV_HUGEPAGE
  // Large pages where the system offers them: the arenas are read from end to end, and address translation takes time.
  constexpr std::intptr_t page = 4096;
  const auto first = (reinterpret_cast<std::intptr_t>(base_) + page - 1) / page * page;
  const auto length = reinterpret_cast<std::intptr_t>(base_) + capacity_ - first;
  if (std::is_same_v<Space::memory_space, Kokkos::HostSpace> && length > 0)
    madvise(reinterpret_cast<void*>(first), std::size_t(length), MADV_HUGEPAGE);
#endif
  forbid(base_, capacity_);
}

Arena Arena::dry_run(Memory category) {
  Arena arena(category);
  arena.base_ = reinterpret_cast<char*>(alignment);  // never followed: kernels do not run on a dry-run device
  arena.capacity_ = std::numeric_limits<Index>::max() / 2;
  return arena;
}

void* Arena::push(Index bytes) {
  const Index next = used_ + aligned(bytes);
  ensure(bytes >= 0 && next <= capacity_, "the {} arena holds {} bytes and {} more were asked for beyond {}", name_of(category_), capacity_, bytes,
         used_);
  char* piece = base_ + used_;
  if (memory_) allow(piece, bytes);
  used_ = next;
  high_water_ = std::max(high_water_, used_);
  return piece;
}

void Arena::release(Index mark) {
  if (memory_) forbid(base_ + mark, used_ - mark);
  used_ = mark;
}

}  // namespace gyr
