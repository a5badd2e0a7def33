// SPDX-License-Identifier: BSD-3-Clause
// Instructions of GPUs of compute capability 9.0 (sm_90a) in addition to primitives.hpp. wgmma: asynchronous GEMMs by a
// warpgroup, which is four consecutive warps starting at a multiple of four. Named barriers for a subset of warps, and
// redistribution of registers (setmaxnreg).
#pragma once

#include "kernels/cuda/machine/primitives.hpp"

#if !defined(__CUDACC__)
#include "kernels/cuda/emulation/warpgroups.hpp"
#endif

namespace gyr::cuda {

inline constexpr int group_threads = 128;

// True if the target architecture has these instructions. Kernels that need them are empty if it does not.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool has_warpgroups = true;
#else
inline constexpr bool has_warpgroups = false;
#endif

// Shared-memory matrix descriptor of wgmma for bf16 with 128-byte swizzle (PTX, "Matrix Descriptor Format"). The matrix
// consists of consecutive 8 x 128-byte atoms, in which 16-byte chunk c of row r is stored at chunk c ^ r. leading:
// bytes from an atom to the next one along the columns (N-major only; a K-major matrix has one atom per row of atoms).
// stride: bytes to the next atom along the rows.
struct MatrixDescriptor {
  std::uint32_t low, high;  // halves of the 64-bit descriptor; the low one contains the address
};
GYR_FUNCTION constexpr MatrixDescriptor place_at(std::uint32_t address, int leading, int stride) {
  return {(address & 0x3ffff) >> 4 | std::uint32_t(leading >> 4) << 16, std::uint32_t(stride >> 4) | std::uint32_t(1) << 30};
}
// The same matrix, advanced by `bytes`, a multiple of 16.
GYR_FUNCTION constexpr MatrixDescriptor moved(const MatrixDescriptor& m, int bytes) { return {m.low + std::uint32_t(bytes >> 4), m.high}; }
// Offset, in elements, of columns [8 c, 8 c + 8) of row r in a column of such atoms.
GYR_FUNCTION constexpr int swizzled_place(int r, int c) { return r * 64 + (c ^ r % 8) * 8; }

// Storage of the right operand B (K x N) of a wgmma. rows: stored rows are columns of B, so that the summed dimension
// is contiguous (K-major). columns: stored rows are rows of B (N-major).
enum class Major { rows, columns };

#if defined(__CUDACC__)

GYR_DEVICE MatrixDescriptor place_of(const bf16* at, int leading, int stride) {
  return place_at(std::uint32_t(__cvta_generic_to_shared(at)), leading, stride);
}
GYR_DEVICE std::uint64_t bits_of(const MatrixDescriptor& m) {
  std::uint64_t bits;
  asm("mov.b64 %0, {%1, %2};" : "=l"(bits) : "r"(m.low), "r"(m.high));
  return bits;
}

// Keeps the values in registers and orders accesses to them at this point, because the compiler does not know that
// wgmma accesses them asynchronously.
template <int F>
GYR_DEVICE void pin(FragmentD (&d)[F]) {
  GYR_UNROLL
  for (int n = 0; n < F; ++n) asm volatile("" : "+f"(d[n].at[0]), "+f"(d[n].at[1]), "+f"(d[n].at[2]), "+f"(d[n].at[3])::"memory");
}
template <int F>
GYR_DEVICE void pin(FragmentA (&a)[F]) {
  GYR_UNROLL
  for (int n = 0; n < F; ++n) asm volatile("" : "+r"(a[n].at[0]), "+r"(a[n].at[1]), "+r"(a[n].at[2]), "+r"(a[n].at[3])::"memory");
}

// wgmma.fence: orders earlier accesses to these registers before the following wgmmas, which may read and accumulate
// into them.
template <class... R>
GYR_DEVICE void fence_wgmma(R&... registers) {
  (pin(registers), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
GYR_DEVICE void commit_wgmma() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all committed wgmma groups except the last N. registers: accumulators and operands of the groups that are
// complete.
template <int N, class... R>
GYR_DEVICE void wait_wgmma(R&... registers) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
  (pin(registers), ...);
}

#define GYR_D1(c, n) c(d[n].at[0]), c(d[n].at[1]), c(d[n].at[2]), c(d[n].at[3])
#define GYR_D4(c, n) GYR_D1(c, n), GYR_D1(c, n + 1), GYR_D1(c, n + 2), GYR_D1(c, n + 3)
#define GYR_D8(c) GYR_D4(c, 0), GYR_D4(c, 4)
#define GYR_D16(c) GYR_D8(c), GYR_D4(c, 8), GYR_D4(c, 12)
#define GYR_N10(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define GYR_N32 GYR_N10() GYR_N10(1) GYR_N10(2) "%30,%31"
#define GYR_N64 GYR_N10() GYR_N10(1) GYR_N10(2) GYR_N10(3) GYR_N10(4) GYR_N10(5) "%60,%61,%62,%63"
// The predicate selects whether the instruction adds to d or overwrites it. The operands are not negated (factors 1).
#define GYR_WGMMA(n, d, operands, adds, tail) \
  "{.reg .pred p;\nsetp.ne.b32 p, " adds ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" d "}, " operands ", p, 1, 1" tail ";}\n"

// Issues a wgmma: d (64, 8 F) = or += a (64, 16) b (16, 8 F), with F = 8 or 16. Warp w of the warpgroup holds rows [16
// w, 16 w + 16) of d in the fragments of primitives.hpp; d[n] has columns [8 n, 8 n + 8). a: register fragments, or a
// K-major matrix in shared memory.
template <bool adds, Major major, int F>
GYR_DEVICE void issue_wgmma(FragmentD (&d)[F], const FragmentA& a, const MatrixDescriptor& b) {
  static_assert(F == 8 || F == 16);
  if constexpr (F == 8)
    asm volatile(GYR_WGMMA(64, GYR_N32, "{%32,%33,%34,%35}, %36", "%37", ", %38")
                 : GYR_D8("+f")
                 : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "l"(bits_of(b)), "n"(adds), "n"(major == Major::columns));
  else
    asm volatile(GYR_WGMMA(128, GYR_N64, "{%64,%65,%66,%67}, %68", "%69", ", %70")
                 : GYR_D16("+f")
                 : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "l"(bits_of(b)), "n"(adds), "n"(major == Major::columns));
}
template <bool adds, Major major, int F>
GYR_DEVICE void issue_wgmma(FragmentD (&d)[F], const MatrixDescriptor& a, const MatrixDescriptor& b) {
  static_assert(F == 8 || F == 16);
  if constexpr (F == 8)
    asm volatile(GYR_WGMMA(64, GYR_N32, "%32, %33", "%34", ", 0, %35")
                 : GYR_D8("+f")
                 : "l"(bits_of(a)), "l"(bits_of(b)), "n"(adds), "n"(major == Major::columns));
  else
    asm volatile(GYR_WGMMA(128, GYR_N64, "%64, %65", "%66", ", 0, %67")
                 : GYR_D16("+f")
                 : "l"(bits_of(a)), "l"(bits_of(b)), "n"(adds), "n"(major == Major::columns));
}
#undef GYR_WGMMA
#undef GYR_N64
#undef GYR_N32
#undef GYR_N10
#undef GYR_D16
#undef GYR_D8
#undef GYR_D4
#undef GYR_D1

// Async-proxy fence. It makes this thread's shared-memory writes, including cp.async copies that it has waited for,
// visible to wgmmas that are issued after the next barrier.
GYR_DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Forces x, which must be >= 0, to be computed before the next wgmma wait. Otherwise ptxas moves the wait ahead of the
// arithmetic, which then does not overlap with the wgmma. ptxas does not move stores, and this predicated store is
// never executed.
GYR_DEVICE void pin_registers(float x) {
  asm volatile("{.reg .pred p;\nsetp.lt.f32 p, %0, 0f00000000;\n@p st.shared.f32 [%1], %0;}" ::"f"(x), "r"(0) : "memory");
}

// Named barrier `number` (1 to 15) for `threads` threads in full warps. sync_named_barrier arrives and waits for all threads;
// arrive_at_barrier only arrives. Memory accesses before the arrival are visible to the threads that waited.
GYR_DEVICE void sync_named_barrier(int number, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory"); }
GYR_DEVICE void arrive_at_barrier(int number, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory"); }

// setmaxnreg: changes the number of registers per thread of this warpgroup to N, upwards or downwards.
template <int N>
GYR_DEVICE void increase_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
GYR_DEVICE void decrease_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

#else

inline MatrixDescriptor place_of(const bf16* at, int leading, int stride) {
  return place_at(std::uint32_t(reinterpret_cast<const char*>(at) - Block::current().shared()), leading, stride);
}
inline std::uint64_t bits_of(const MatrixDescriptor& m) { return m.low | std::uint64_t(m.high) << 32; }
template <class... R>
void fence_wgmma(R&... registers) {
  Block& block = Block::current();
  (block.warpgroups().fence(registers, sizeof(registers)), ...);
  block.sync_with(SyncKind::group_fence, nullptr, Site::current(), [] {});
}
inline void commit_wgmma(const Site& site = Site::current()) {
  Block& block = Block::current();
  block.sync_with(SyncKind::group_commit, nullptr, site, [&] { block.warpgroups().commit(); });
}
template <int N, class... R>
void wait_wgmma(R&...) {
  Block& block = Block::current();
  block.sync_with(SyncKind::group_wait, nullptr, Site::current(), [&] { block.warpgroups().wait(N, Site::current()); });
}
inline void issue_mma(GroupOperands lane, const Site& site) {
  Block& block = Block::current();
  block.sync_with(SyncKind::warpgroup_mma, &lane, site, [&] { block.warpgroups().enqueue(site); });
}
template <bool adds, Major major, int F>
void issue_wgmma(FragmentD (&d)[F], const FragmentA& a, const MatrixDescriptor& b, const Site& site = Site::current()) {
  issue_mma({d[0].at, 8 * F, adds, a.at, 0, bits_of(b), major == Major::columns}, site);
}
template <bool adds, Major major, int F>
void issue_wgmma(FragmentD (&d)[F], const MatrixDescriptor& a, const MatrixDescriptor& b, const Site& site = Site::current()) {
  issue_mma({d[0].at, 8 * F, adds, nullptr, bits_of(a), bits_of(b), major == Major::columns}, site);
}
inline void pin_registers(float) {}
inline void fence_async_proxy() { Block::current().fence_proxies(); }
inline void sync_named_barrier(int number, int threads, const Site& site = Site::current()) {
  Block::current().sync_some(number, threads, true, site);
}
inline void arrive_at_barrier(int number, int threads, const Site& site = Site::current()) {
  Block::current().sync_some(number, threads, false, site);
}
template <int N>
void increase_registers() {
  static_assert(N % 8 == 0 && N >= 24 && N <= 256);
}
template <int N>
void decrease_registers() {
  static_assert(N % 8 == 0 && N >= 24 && N <= 256);
}

#endif

}  // namespace gyr::cuda
