// SPDX-License-Identifier: BSD-3-Clause
// What GPUs of capability 9.0 (sm_90a) have besides primitives.hpp: products of warpgroups, which are four warps, the first of which has a number
// that four divides; they run beside the threads, which wait for them by groups. Barriers of some warps; ways to share registers.
#pragma once

#include "kernels/cuda/machine/primitives.hpp"

#if !defined(__CUDACC__)
#include "kernels/cuda/emulation/warpgroups.hpp"
#endif

namespace gyr::cuda {

inline constexpr int group_threads = 128;

// Whether code of the architecture that is compiled for may have these instructions. Where it may not, kernels that need them are empty.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool has_warpgroups = true;
#else
inline constexpr bool has_warpgroups = false;
#endif

// A matrix of bf16 in shared memory as a product finds it: a descriptor (PTX, "Matrix Descriptor Format") with a swizzle of 128 bytes. The matrix is
// made of squares of 8 rows of 128 bytes, one behind the other, whose 16-byte columns are exchanged: column c of row r lies at c ^ r. leading and
// stride, in bytes, are what lies between squares: along rows (of matrices by columns; by rows there is one), and between rows.
struct MatrixDescriptor {
  std::uint32_t low, high;  // halves: the low one has the address
};
GYR_FUNCTION constexpr MatrixDescriptor place_at(std::uint32_t address, int leading, int stride) {
  return {(address & 0x3ffff) >> 4 | std::uint32_t(leading >> 4) << 16, std::uint32_t(stride >> 4) | std::uint32_t(1) << 30};
}
// The same matrix, so many bytes on, of which 16 are the least.
GYR_FUNCTION constexpr MatrixDescriptor moved(const MatrixDescriptor& m, int bytes) { return {m.low + std::uint32_t(bytes >> 4), m.high}; }
// Where numbers [8 c, 8 c + 8) of row r of such squares one above the other lie, counted in numbers.
GYR_FUNCTION constexpr int swizzled_place(int r, int c) { return r * 64 + (c ^ r % 8) * 8; }

// How the right operand of a product lies: `rows`: rows are its columns, along which is summed (K-major); `columns`: rows are what is summed over
// (N-major).
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

// Registers stay on their side of what comes next: the compiler does not know that products run beside it.
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

// Products that are told from now on may take and add to these registers as they are.
template <class... R>
GYR_DEVICE void fence_wgmma(R&... registers) {
  (pin(registers), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
GYR_DEVICE void commit_wgmma() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// For all groups of products but the last N; the registers are those that have been waited for.
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
// The predicate says whether d is added to; factors are 1.
#define GYR_WGMMA(n, d, operands, adds, tail) \
  "{.reg .pred p;\nsetp.ne.b32 p, " adds ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" d "}, " operands ", p, 1, 1" tail ";}\n"

// d (64, 8 F) = or += a (64, 16) b (16, 8 F), F 8 or 16, by a warpgroup, of which warp w has rows [16 w, 16 w + 16) in the fragments of
// primitives.hpp: d[n] columns [8 n, 8 n + 8). a: fragments, or a matrix by rows.
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

// What this thread has written to shared memory, copies that it has waited for among them, is there for products of those whom a barrier lets go on
// behind it.
GYR_DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// x, which is never below zero, is computed before anything behind this waits for products: the assembler would wait first, and nothing run beside
// them. It leaves stores where they are; this one is never made.
GYR_DEVICE void pin_registers(float x) {
  asm volatile("{.reg .pred p;\nsetp.lt.f32 p, %0, 0f00000000;\n@p st.shared.f32 [%1], %0;}" ::"f"(x), "r"(0) : "memory");
}

// Barrier `number`, 1 to 15, of so many threads, whole warps: this one has come, and waits for all or does not. What threads did before they came is
// there for those that waited.
GYR_DEVICE void sync_named_barrier(int number, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory"); }
GYR_DEVICE void arrive_at_barrier(int number, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory"); }

// From now on this warpgroup has so many registers a thread, more or fewer than before.
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
inline void issue_product(GroupOperands lane, const Site& site) {
  Block& block = Block::current();
  block.sync_with(SyncKind::warpgroup_mma, &lane, site, [&] { block.warpgroups().enqueue(site); });
}
template <bool adds, Major major, int F>
void issue_wgmma(FragmentD (&d)[F], const FragmentA& a, const MatrixDescriptor& b, const Site& site = Site::current()) {
  issue_product({d[0].at, 8 * F, adds, a.at, 0, bits_of(b), major == Major::columns}, site);
}
template <bool adds, Major major, int F>
void issue_wgmma(FragmentD (&d)[F], const MatrixDescriptor& a, const MatrixDescriptor& b, const Site& site = Site::current()) {
  issue_product({d[0].at, 8 * F, adds, nullptr, bits_of(a), bits_of(b), major == Major::columns}, site);
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
