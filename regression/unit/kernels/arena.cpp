// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/device/arena.hpp"

#include "regression/support/tensors.hpp"

namespace gyr::testing::arena_suite {

extern "C" __attribute__((weak)) void* __asan_region_is_poisoned(void* begin, std::size_t size);  // first poisoned byte of the range, or null

namespace {

// Allocates tensors in nested scopes, on any arena.
void use(Arena& arena) {
  arena.tensor<float>(3, 5);
  {
    Scope scope(arena);
    arena.tensor<double>(100);
    {
      Scope inner(arena);
      arena.tensor<bf16>(7, 11, 13);
    }
    arena.tensor<float>(1);
  }
  arena.tensor<double>(2, 2, 2, 2);
}

}  // namespace

TEST(arena, dry_run_counts_bytes_of_real_run) {
  Arena real(Memory::scratch, 1 << 16), dry = Arena::dry_run(Memory::scratch);
  use(real);
  use(dry);
  EXPECT_EQ(dry.used(), real.used());
  EXPECT_EQ(dry.high_water(), real.high_water());
  EXPECT_GT(real.high_water(), real.used());
  Arena exact(Memory::scratch, dry.high_water());  // an arena of exactly the counted bytes is sufficient
  EXPECT_NO_THROW(use(exact));
  Arena less(Memory::scratch, dry.high_water() - 256);  // 256 bytes less are not sufficient
  EXPECT_THROW(use(less), Error);
}

TEST(arena, tensors_are_aligned_and_do_not_overlap) {
  Arena arena(Memory::weights, 4096);
  const auto a = arena.tensor<bf16>(3), b = arena.tensor<bf16>(200), c = arena.tensor<bf16>(1);
  for (const auto& x : {a, b, c}) EXPECT_EQ(reinterpret_cast<std::uintptr_t>(x.data()) % 256, 0u);
  EXPECT_GE(b.data(), a.data() + 3);
  EXPECT_GE(c.data(), b.data() + 200);
}

TEST(arena, scope_releases_its_memory_at_end) {
  Arena arena(Memory::scratch, 4096);
  const Index before = arena.mark();
  void* first;
  {
    Scope scope(arena);
    first = arena.push(1000);
    EXPECT_EQ(arena.used(), 1024);
  }
  EXPECT_EQ(arena.used(), before);
  EXPECT_EQ(arena.push(1), first);
}

// In builds with AddressSanitizer, which sees an arena as a single block: only the bytes of live tensors are
// accessible.
TEST(arena, address_sanitizer_detects_access_beyond_tensor) {
  if (!__asan_region_is_poisoned) GTEST_SKIP() << "this build has no AddressSanitizer; use the debug preset";
  const auto forbidden = [](const void* at, Index bytes) { return __asan_region_is_poisoned(const_cast<void*>(at), std::size_t(bytes)); };
  Arena arena(Memory::scratch, 4096);
  const auto kept = arena.tensor<float>(5);
  EXPECT_EQ(forbidden(kept.data(), 20), nullptr);
  EXPECT_EQ(forbidden(kept.data(), 21), kept.data() + 5);
  char* piece;
  {
    Scope scope(arena);
    piece = static_cast<char*>(arena.push(256));
    EXPECT_EQ(forbidden(piece, 256), nullptr);
    EXPECT_EQ(forbidden(piece, 257), piece + 256);
  }
  EXPECT_EQ(forbidden(piece, 1), piece);
  EXPECT_EQ(forbidden(kept.data(), 20), nullptr);
}

TEST(arena, exceeding_capacity_is_an_internal_error) {
  Arena arena(Memory::optimizer, 1024);
  arena.push(512);
  try {
    arena.push(513);
    FAIL() << "allocating 513 bytes succeeded although 512 of 1024 are in use";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Exit::internal);
    EXPECT_NE(std::string(e.what()).find("optimizer"), std::string::npos) << e.what();
  }
  EXPECT_NO_THROW(arena.push(512));
  EXPECT_THROW(Arena(Memory::scratch, 1024).push(-1), Error);
}

TEST(arena, failed_allocation_is_a_device_error) {
  try {
    Arena arena(Memory::weights, Index(1) << 60);
    FAIL() << "allocating 2^60 bytes succeeded";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Exit::device);
  }
}

}  // namespace gyr::testing::arena_suite
