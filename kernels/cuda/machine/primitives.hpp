// SPDX-License-Identifier: BSD-3-Clause
// The operations through which all kernels access the hardware. nvcc compiles them to CUDA instructions; other
// compilers use the emulation in emulation/machine.hpp. Grids and blocks are one-dimensional.
#pragma once

#include "kernels/base/math.hpp"
#include "kernels/base/tensor.hpp"

#if defined(__CUDACC__)
#define GYR_DEVICE __device__ __forceinline__
#define GYR_KERNEL __global__ void
#define GYR_KERNEL_OF(threads, blocks) __global__ __launch_bounds__(threads, blocks) void
#define GYR_KERNEL_WITHIN(registers) __global__ void __maxnreg__(registers)
#define GYR_UNROLL _Pragma("unroll")
#define GYR_UNROLL_BY(n) _Pragma(GYR_TEXT(unroll n))
#define GYR_TEXT(x) #x
#else
#include "kernels/cuda/emulation/machine.hpp"
#include "kernels/cuda/emulation/memory.hpp"
#define GYR_DEVICE inline
#define GYR_KERNEL void
#define GYR_KERNEL_OF(threads, blocks) void
#define GYR_KERNEL_WITHIN(registers) void
#define GYR_UNROLL
#define GYR_UNROLL_BY(n)
#endif

// GYR_UNROLL, GYR_UNROLL_BY(n): unroll the following loop fully or n times; full unrolling keeps arrays that the loop indexes in registers.
// GYR_KERNEL_OF(threads, blocks): kernel with launch bounds, `threads` per block and at least `blocks` resident blocks per SM.
// GYR_KERNEL_WITHIN(registers): kernel with at most this number of registers per thread.

namespace gyr::cuda {

GYR_FUNCTION constexpr Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }

inline constexpr int pack_bytes = 16;  // bytes of one vector load, store or cp.async

// Fragments that a lane holds of the operands of mma.sync: d (16,8) += a (16,16) b (16,8); a and b are bf16, two elements per register.
// With g = lane / 4 and t = lane % 4 (PTX, "Matrix Fragments for mma.m16n8k16"):
//   a.at[i], half h: row g + 8 (i % 2), column 8 (i / 2) + 2 t + h;   b.at[i], half h: row 8 i + 2 t + h, column g;
//   d.at[i]: row g + 8 (i / 2), column 2 t + i % 2
struct FragmentA {
  std::uint32_t at[4];
};
struct FragmentB {
  std::uint32_t at[2];
};
struct FragmentD {
  float at[4];
};

// N adjacent elements that are loaded and stored together.
template <class T, int N>
struct alignas(N * sizeof(T) < pack_bytes ? N * sizeof(T) : pack_bytes) Pack {
  T at[N];
};

// A pack held in registers. It is stored as 32-bit words if its size allows, because the compiler might use a register
// per bf16 element.
template <class T, int N>
class Held {
  static constexpr bool in_words = N * sizeof(T) % sizeof(std::uint32_t) == 0;
  using Words = std::conditional_t<in_words, Pack<std::uint32_t, in_words ? int(N * sizeof(T) / sizeof(std::uint32_t)) : 1>, Pack<T, N>>;

 public:
  Held() = default;
  GYR_DEVICE Held(const Pack<T, N>& v) : words_(__builtin_bit_cast(Words, v)) {}
  // The elements, converted to the accumulation type.
  GYR_DEVICE Pack<Acc<T>, N> values() const {
    Pack<Acc<T>, N> v;
    if constexpr (std::is_same_v<T, bf16> && in_words) {
      GYR_UNROLL
      for (int i = 0; i < N; ++i) v.at[i] = __builtin_bit_cast(float, i % 2 ? words_.at[i / 2] & 0xffff0000u : words_.at[i / 2] << 16);
    } else {
      const auto all = __builtin_bit_cast(Pack<T, N>, words_);
      for (int i = 0; i < N; ++i) v.at[i] = Acc<T>(all.at[i]);
    }
    return v;
  }

 private:
  Words words_;
};

#if defined(__CUDACC__)

inline constexpr int warp_size = 32;
enum class Touch { read, write };
struct Site {
  static constexpr GYR_DEVICE Site current() { return {}; }
};

GYR_DEVICE int thread_index() { return int(threadIdx.x); }
GYR_DEVICE int block_threads() { return int(blockDim.x); }
GYR_DEVICE Index block_index() { return Index(blockIdx.x); }
GYR_DEVICE Index grid_blocks() { return Index(gridDim.x); }
GYR_DEVICE void sync_block() { __syncthreads(); }
GYR_DEVICE void sync_warp() { __syncwarp(); }
template <class V>
GYR_DEVICE V shuffle_xor(V v, int with) {
  return __shfl_xor_sync(0xffffffffu, v, with);
}
// Value of v in lane `from`.
template <class V>
GYR_DEVICE V shuffle(V v, int from) {
  return __shfl_sync(0xffffffffu, v, from);
}
// Bit l of the result is the predicate of lane l.
GYR_DEVICE std::uint32_t ballot(bool predicate) { return __ballot_sync(0xffffffffu, predicate); }
GYR_DEVICE int lowest_bit(std::uint32_t bits) { return __ffs(int(bits)) - 1; }
GYR_DEVICE int bits_of(std::uint32_t bits) { return __popc(bits); }
GYR_DEVICE void multiply_add(FragmentD& d, const FragmentA& a, const FragmentB& b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d.at[0]), "+f"(d.at[1]), "+f"(d.at[2]), "+f"(d.at[3])
               : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
}
// Two values rounded to bf16 in one register, the first in the lower half.
GYR_DEVICE std::uint32_t pair(float low, float high) {
  std::uint32_t d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
GYR_DEVICE float largest(float a, float b) { return fmaxf(a, b); }
// 2^x; subnormal results are flushed to zero.
GYR_DEVICE float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 1 / sqrt(x); the float version is accurate to 2 ulp.
GYR_DEVICE float inverse_root(float x) { return rsqrtf(x); }
// ldmatrix.x4: loads four 8 x 8 matrices of bf16. Lane 8 m + i passes the address of row i of matrix m. Afterwards
// at[m] of each lane holds row lane / 4, columns 2 (lane % 4) and 2 (lane % 4) + 1 of matrix m. With the transposed
// version, it holds column lane / 4, rows 2 (lane % 4) and 2 (lane % 4) + 1.
GYR_DEVICE FragmentA load_matrix_x4(const bf16* row) {
  FragmentA r;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r.at[0]), "=r"(r.at[1]), "=r"(r.at[2]), "=r"(r.at[3])
               : "r"(std::uint32_t(__cvta_generic_to_shared(row)))
               : "memory");
  return r;
}
GYR_DEVICE FragmentA load_matrix_x4_transposed(const bf16* row) {
  FragmentA r;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r.at[0]), "=r"(r.at[1]), "=r"(r.at[2]), "=r"(r.at[3])
               : "r"(std::uint32_t(__cvta_generic_to_shared(row)))
               : "memory");
  return r;
}
// cp.async: copies pack_bytes from global to shared memory, or writes zeros. The data is visible to this thread once it
// has waited for the group in which the copy was committed.
GYR_DEVICE void copy_async(void* to, const void* from, bool zeros, Site) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(std::uint32_t(__cvta_generic_to_shared(to))), "l"(from), "r"(zeros ? 0 : 16)
               : "memory");
}
GYR_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all committed cp.async groups except the last N.
template <int N>
GYR_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
GYR_DEVICE char* shared_bytes() {
  extern __shared__ __align__(1024) char bytes[];
  return bytes;
}
template <class T>
GYR_DEVICE T* resolved(T* p) {
  return p;
}
// Address times * bytes bytes after p in global memory.
template <class T>
GYR_DEVICE T* moved(T* p, int times, int bytes) {
  T* to;
  asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(to) : "r"(times), "r"(bytes), "l"(p));
  __builtin_assume(__isGlobal(to));
  return to;
}
// Stores a pack with one vector instruction, as words. The compiler might store bf16 elements one by one.
template <class T, int N>
GYR_DEVICE void write_pack(T* to, const Pack<T, N>& v) {
  constexpr int bytes = int(sizeof(v));
  if constexpr (bytes == 8) {
    const auto w = __builtin_bit_cast(uint2, v);
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(w.x), "r"(w.y) : "memory");
  } else if constexpr (bytes == 16) {
    const auto w = __builtin_bit_cast(uint4, v);
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w) : "memory");
  } else *reinterpret_cast<Pack<T, N>*>(to) = v;
}
GYR_DEVICE void watch_shared(const void*, int, Touch, Site) {}
GYR_DEVICE void watch_global(const void*, int, bool, Touch, Site) {}

#else

inline int thread_index() { return Block::thread().number; }
inline int block_threads() { return Block::current().grid().threads; }
inline Index block_index() { return Block::current().number(); }
inline Index grid_blocks() { return Block::current().grid().blocks; }
inline void sync_block(const Site& site = Site::current()) { Block::current().sync_all(site); }
inline void sync_warp(const Site& site = Site::current()) {
  Block::current().sync_with(SyncKind::warp_barrier, nullptr, site, [] {});
}
template <class V>
V shuffle(V v, int from, const Site& site = Site::current()) {
  struct Lane {
    V given;
    int from;
    V taken;
  } lane{v, from, V()};
  Block& block = Block::current();
  block.sync_with(SyncKind::shuffle, &lane, site, [&] {
    for (int l = 0; l < warp_size; ++l) {
      Lane& to = block.argument<Lane>(l);
      to.taken = block.argument<Lane>(to.from % warp_size).given;
    }
  });
  return lane.taken;
}
template <class V>
V shuffle_xor(V v, int with, const Site& site = Site::current()) {
  return cuda::shuffle(v, Block::thread().lane() ^ with, site);  // qualified, because argument-dependent lookup would also find std::shuffle for int
}
inline std::uint32_t ballot(bool predicate, const Site& site = Site::current()) {
  struct Lane {
    bool predicate;
    std::uint32_t all;
  } lane{predicate, 0};
  Block& block = Block::current();
  block.sync_with(SyncKind::ballot, &lane, site, [&] {
    std::uint32_t all = 0;
    for (int l = 0; l < warp_size; ++l) all |= std::uint32_t(block.argument<Lane>(l).predicate) << l;
    for (int l = 0; l < warp_size; ++l) block.argument<Lane>(l).all = all;
  });
  return lane.all;
}
inline int lowest_bit(std::uint32_t bits) { return std::countr_zero(bits); }
inline int bits_of(std::uint32_t bits) { return std::popcount(bits); }

inline void multiply_add(FragmentD& d, const FragmentA& a, const FragmentB& b, const Site& site = Site::current()) {
  struct Lane {
    FragmentD* d;
    const FragmentA* a;
    const FragmentB* b;
  } lane{&d, &a, &b};
  Block& block = Block::current();
  block.sync_with(SyncKind::mma, &lane, site, [&] {
    block.count_gemms(1);
    const auto number = [](std::uint32_t pair, int half) { return std::bit_cast<float>(pair >> 16 * half << 16); };
    float A[16][16], B[16][8];
    for (int l = 0; l < warp_size; ++l)
      for (int h = 0; h < 2; ++h) {
        const Lane& from = block.argument<Lane>(l);
        for (int i = 0; i < 4; ++i) A[l / 4 + 8 * (i % 2)][8 * (i / 2) + 2 * (l % 4) + h] = number(from.a->at[i], h);
        for (int i = 0; i < 2; ++i) B[8 * i + 2 * (l % 4) + h][l / 4] = number(from.b->at[i], h);
      }
    float sums[16][8] = {};
    for (int m = 0; m < 16; ++m)
      for (int k = 0; k < 16; ++k)
        for (int n = 0; n < 8; ++n) sums[m][n] += A[m][k] * B[k][n];
    for (int l = 0; l < warp_size; ++l)
      for (int i = 0; i < 4; ++i) block.argument<Lane>(l).d->at[i] += sums[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2];
  });
}
inline std::uint32_t pair(float low, float high) { return std::uint32_t(bf16(low).bits) | std::uint32_t(bf16(high).bits) << 16; }
inline float largest(float a, float b) { return std::fmax(a, b); }
inline float exp2(float x) { return std::exp2(x); }
inline float inverse_root(float x) { return 1 / std::sqrt(x); }
inline FragmentA load_four_as(const bf16* row, bool transposed, const Site& site) {
  struct Lane {
    const bf16* row;
    FragmentA taken;
  } lane{row, {}};
  Block& block = Block::current();
  if (block.watched()) block.watch_shared(row, pack_bytes, Touch::read, site);
  block.sync_with(SyncKind::matrices, &lane, site, [&] {
    for (int l = 0; l < warp_size; ++l)
      for (int m = 0; m < 4; ++m) {
        const auto at = [&](int i, int j) { return std::uint32_t(block.argument<Lane>(8 * m + i).row[j].bits); };
        const int i = l / 4, j = 2 * (l % 4);
        block.argument<Lane>(l).taken.at[m] = transposed ? at(j, i) | at(j + 1, i) << 16 : at(i, j) | at(i, j + 1) << 16;
      }
  });
  return lane.taken;
}
inline FragmentA load_matrix_x4(const bf16* row, const Site& site = Site::current()) { return load_four_as(row, false, site); }
inline FragmentA load_matrix_x4_transposed(const bf16* row, const Site& site = Site::current()) { return load_four_as(row, true, site); }
inline void copy_async(void* to, const void* from, bool zeros, const Site& site) { Block::current().copy_async(to, from, zeros, site); }
inline void commit_copies() { Block::current().commit_copies(); }
template <int N>
void wait_copies() {
  Block::current().wait_copies(N);
}
inline char* shared_bytes() { return Block::current().shared(); }
template <class T>
T* moved(T* p, int times, int bytes) {
  return p + Index(times) * bytes;
}
template <class T, int N>
void write_pack(T* to, const Pack<T, N>& v) {
  *reinterpret_cast<Pack<T, N>*>(to) = v;
}
inline void watch_shared(const void* p, int bytes, Touch touch, const Site& site) {
  if (Block& block = Block::current(); block.watched()) block.watch_shared(p, bytes, touch, site);
}
inline void watch_global(const void* p, int bytes, bool inside, Touch touch, const Site& site) {
  Block& block = Block::current();
  if (!inside) block.violation("an access outside the tensor", site);
  if (block.watched()) block.watch_global(p, bytes, touch, site);
}

#endif

GYR_DEVICE double inverse_root(double x) { return 1 / std::sqrt(x); }

GYR_DEVICE int lane() { return thread_index() % warp_size; }
GYR_DEVICE int warp() { return thread_index() / warp_size; }
GYR_DEVICE int block_warps() { return block_threads() / warp_size; }

// Matrix in global memory whose rows are `stride` elements apart, or a single row. As a kernel argument it also
// declares which memory the kernel accesses: it may read it, and also write it unless T is const.
template <class T>
class Global {
 public:
  Global() = default;
  GYR_FUNCTION Global(const Matrix<T>& x) : data_(x.data), rows_(x.rows), columns_(x.columns), stride_(x.stride) {}
  Global(const Tensor1<T>& x) : data_(x.data()), rows_(1), columns_(x.span()), stride_(x.span()) {}
  Global(const Tensor2<T>& x) : Global(Matrix<T>(x)) {}
  template <class U>
  requires(std::is_same_v<const U, T>) GYR_FUNCTION Global(const Global<U>& x)
      : data_(x.data_), rows_(x.rows_), columns_(x.columns_), stride_(x.stride_) {}
  template <class U>
  requires(std::is_same_v<const U, T>) Global(const Matrix<U>& x) : Global(Matrix<T>(x)) {}
  template <class U>
  requires(std::is_same_v<const U, T>) Global(const Tensor1<U>& x) : Global(Tensor1<T>(x)) {}
  template <class U>
  requires(std::is_same_v<const U, T>) Global(const Tensor2<U>& x) : Global(Tensor2<T>(x)) {}

  GYR_FUNCTION Index rows() const { return rows_; }
  GYR_FUNCTION Index columns() const { return columns_; }
  GYR_FUNCTION explicit operator bool() const { return data_ != nullptr; }
  // True if packs of N elements are aligned at every N-th column of each row.
  template <int N>
  bool packs() const {
    constexpr auto grain = alignof(Pack<T, N>);
    return reinterpret_cast<std::uintptr_t>(data_) % grain == 0 && columns_ % N == 0 && (rows_ <= 1 || stride_ * sizeof(T) % grain == 0);
  }

  GYR_DEVICE T load(Index r, Index c, const Site& site = Site::current()) const {
    watch_global(at(r, c), sizeof(T), inside(r, c, 1), Touch::read, site);
    return *resolved(at(r, c));
  }
  GYR_DEVICE void store(Index r, Index c, T v, const Site& site = Site::current()) const {
    watch_global(at(r, c), sizeof(T), inside(r, c, 1), Touch::write, site);
    *resolved(at(r, c)) = v;
  }
  template <int N>
  GYR_DEVICE Pack<std::remove_const_t<T>, N> load_pack(Index r, Index c, const Site& site = Site::current()) const {
    watch_pack<N>(r, c, Touch::read, site);
    return *reinterpret_cast<const Pack<std::remove_const_t<T>, N>*>(resolved(at(r, c)));
  }
  // Same as load_pack, converted to the accumulation type.
  template <int N>
  GYR_DEVICE Pack<Acc<std::remove_const_t<T>>, N> load_values(Index r, Index c, const Site& site = Site::current()) const {
    return Held<std::remove_const_t<T>, N>(load_pack<N>(r, c, site)).values();
  }
  template <int N>
  GYR_DEVICE void store_pack(Index r, Index c, const Pack<T, N>& v, const Site& site = Site::current()) const {
    watch_pack<N>(r, c, Touch::write, site);
    write_pack(resolved(at(r, c)), v);
  }
  // Issues a cp.async of one pack to shared memory. Writes zeros if the pack is outside the matrix or not wanted.
  GYR_DEVICE void copy(Index r, Index c, std::remove_const_t<T>* to, bool wanted = true, const Site& site = Site::current()) const {
    const bool here = wanted && inside(r, c, pack_bytes / int(sizeof(T)));
    if (here) watch_global(at(r, c), pack_bytes, true, Touch::read, site);
    copy_async(to, resolved(here ? at(r, c) : data_), !here, site);
  }
  // Same as copy, but a wanted pack must be inside the matrix.
  GYR_DEVICE void copy_inside(Index r, Index c, std::remove_const_t<T>* to, bool wanted, const Site& site = Site::current()) const {
    if (wanted) watch_global(at(r, c), pack_bytes, inside(r, c, pack_bytes / int(sizeof(T))), Touch::read, site);
    copy_async(to, resolved(at(r, c)), !wanted, site);
  }
  // Submatrix that starts at (r, c). It saves address arithmetic if a few of its rows are accessed.
  GYR_DEVICE Global part(Index r, Index c) const {
    Global part = *this;
    part.data_ = at(r, c), part.rows_ = rows_ - r, part.columns_ = columns_ - c;
    return part;
  }
  GYR_DEVICE T load(Index i, const Site& site = Site::current()) const { return load(0, i, site); }
  GYR_DEVICE void store(Index i, T v, const Site& site = Site::current()) const { store(0, i, v, site); }

 private:
  template <class U>
  friend class Global;
  template <class U, int N>
  friend class Strip;
  GYR_FUNCTION T* at(Index r, Index c) const { return data_ + r * stride_ + c; }
  GYR_FUNCTION bool inside(Index r, Index c, Index n) const { return r >= 0 && r < rows_ && c >= 0 && c + n <= columns_; }

  // Emulation only: checks one access per instruction that the pack needs.
  template <int N>
  GYR_DEVICE void watch_pack(Index r, Index c, Touch touch, const Site& site) const {
    constexpr int bytes = int(alignof(Pack<T, N>)), values = bytes / int(sizeof(T));
    for (int i = 0; i < N; i += values) watch_global(at(r, c + i), bytes, inside(r, c, N), touch, site);
  }

  T* data_ = nullptr;
  Index rows_ = 0, columns_ = 0, stride_ = 0;
};

// Column of packs of N elements in a matrix, from row `row` downwards, for one thread. The row stride is below 2^31
// bytes, which keeps address arithmetic cheap.
template <class T, int N>
class Strip {
 public:
  GYR_DEVICE Strip(const Global<T>& x, Index row, Index column)
      : x_(x), row_(row), column_(column), first_(reinterpret_cast<Bytes*>(x.at(row, column))), stride_(int(x.stride_) * int(sizeof(T))) {}
  GYR_DEVICE Pack<std::remove_const_t<T>, N> load(int r, const Site& site = Site::current()) const {
    x_.template watch_pack<N>(row_ + r, column_, Touch::read, site);
    return *reinterpret_cast<const Pack<std::remove_const_t<T>, N>*>(resolved(moved(first_, r, stride_)));
  }
  GYR_DEVICE void store(int r, const Pack<T, N>& v, const Site& site = Site::current()) const {
    x_.template watch_pack<N>(row_ + r, column_, Touch::write, site);
    write_pack(reinterpret_cast<T*>(resolved(moved(first_, r, stride_))), v);
  }
  GYR_DEVICE void move_down(int rows) { row_ += rows, first_ = moved(first_, rows, stride_); }
  // Same as Global::copy_inside.
  GYR_DEVICE void copy_inside(int r, std::remove_const_t<T>* to, bool wanted, const Site& site = Site::current()) const {
    static_assert(N * sizeof(T) == pack_bytes);
    if (wanted) x_.template watch_pack<N>(row_ + r, column_, Touch::read, site);
    copy_async(to, resolved(moved(first_, r, stride_)), !wanted, site);
  }

 private:
  using Bytes = std::conditional_t<std::is_const_v<T>, const char, char>;
  Global<T> x_;
  Index row_, column_;
  Bytes* first_;
  int stride_;
};

// Array in the block's dynamic shared memory.
template <class T>
class Shared {
 public:
  GYR_DEVICE explicit Shared(int first_byte = 0) : data_(reinterpret_cast<T*>(shared_bytes() + first_byte)) {}
  GYR_DEVICE T* at(int i) const { return data_ + i; }  // address for ldmatrix and cp.async
  GYR_DEVICE T load(int i, const Site& site = Site::current()) const {
    watch_shared(data_ + i, sizeof(T), Touch::read, site);
    return data_[i];
  }
  GYR_DEVICE void store(int i, T v, const Site& site = Site::current()) const {
    watch_shared(data_ + i, sizeof(T), Touch::write, site);
    data_[i] = v;
  }

 private:
  T* data_;
};

// Sum over a warp, returned to every lane; all lanes add in the same order.
template <class V>
GYR_DEVICE V warp_sum(V v) {
  for (int with = warp_size / 2; with > 0; with /= 2) v += shuffle_xor(v, with);
  return v;
}
// Sums of each of K values.
template <class A, int K>
GYR_DEVICE Pack<A, K> warp_sum(Pack<A, K> v) {
  GYR_UNROLL
  for (int k = 0; k < K; ++k) v.at[k] = warp_sum(v.at[k]);
  return v;
}
// Sums of K values over a warp with the fewest shuffles, if each lane needs only one of them. Lane l receives sum
// number l / (32 / K). K is a power of two.
template <class A, int K>
GYR_DEVICE A warp_sums_by_lane(Pack<A, K> v) {
  GYR_UNROLL
  for (int n = K; n > 1; n /= 2) {  // n: number of values that a lane still holds
    const int with = warp_size / 2 * n / K;
    const bool upper = (lane() & with) != 0;
    GYR_UNROLL
    for (int k = 0; k < n / 2; ++k) {
      const A kept = upper ? v.at[k + n / 2] : v.at[k], given = upper ? v.at[k] : v.at[k + n / 2];
      v.at[k] = kept + shuffle_xor(given, with);
    }
  }
  GYR_UNROLL
  for (int with = warp_size / K / 2; with > 0; with /= 2) v.at[0] += shuffle_xor(v.at[0], with);
  return v.at[0];
}
template <class V>
GYR_DEVICE V warp_largest(V v) {
  for (int with = warp_size / 2; with > 0; with /= 2) {
    const V other = shuffle_xor(v, with);
    v = other > v ? other : v;
  }
  return v;
}

// Inclusive prefix sum: the sum of v over lanes 0 to this one.
GYR_DEVICE int sum_up_to_lane(int v) {
  for (int distance = 1; distance < warp_size; distance *= 2) {
    const bool there = lane() >= distance;
    const int other = shuffle(v, there ? lane() - distance : lane());
    if (there) v += other;
  }
  return v;
}

// Sum, or another reduction `fold`, over a block. `storage`: shared memory with one element per warp, which can be reused
// on return.
template <class V, class Fold>
GYR_DEVICE V block_fold(V v, const Shared<V>& storage, const Fold& fold) {
  if (lane() == 0) storage.store(warp(), v);
  sync_block();
  V all = storage.load(0);
  for (int w = 1; w < block_warps(); ++w) all = fold(all, storage.load(w));
  sync_block();
  return all;
}
template <class V>
GYR_DEVICE V block_sum(V v, const Shared<V>& storage) {
  return block_fold(warp_sum(v), storage, [](V a, V b) { return a + b; });
}

}  // namespace gyr::cuda
