// SPDX-License-Identifier: BSD-3-Clause
// The only way in which kernels touch the machine. nvcc sees what the hardware does, any other compiler what emulation/machine.hpp makes of it.
// Threads of a block are numbered in one dimension, and so are blocks.
#pragma once

#include "kernels/math.hpp"
#include "kernels/tensor.hpp"

#if defined(__CUDACC__)
#define GYR_DEVICE __device__ __forceinline__
#define GYR_KERNEL __global__ void
#else
#include "kernels/cuda/emulation/machine.hpp"
#define GYR_DEVICE inline
#define GYR_KERNEL void
#endif

namespace gyr::cuda {

GYR_FUNCTION constexpr Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }

inline constexpr int pack_bytes = 16;  // that one instruction moves

// N neighbours, which are moved together.
template <class T, int N>
struct alignas(N * sizeof(T) < pack_bytes ? N * sizeof(T) : pack_bytes) Pack {
  T at[N];
};

#if defined(__CUDACC__)

inline constexpr int warp_size = 32;
enum class Touch { read, write, add };
struct Site {
  static constexpr GYR_DEVICE Site current() { return {}; }
};

GYR_DEVICE int thread_index() { return int(threadIdx.x); }
GYR_DEVICE int block_threads() { return int(blockDim.x); }
GYR_DEVICE Index block_index() { return Index(blockIdx.x); }
GYR_DEVICE Index grid_blocks() { return Index(gridDim.x); }
GYR_DEVICE void sync_block() { __syncthreads(); }
template <class V>
GYR_DEVICE V shuffle_xor(V v, int with) {
  return __shfl_xor_sync(0xffffffffu, v, with);
}
// Bit l: what lane l says.
GYR_DEVICE std::uint32_t ballot(bool says) { return __ballot_sync(0xffffffffu, says); }
GYR_DEVICE int lowest_bit(std::uint32_t bits) { return __ffs(int(bits)) - 1; }
GYR_DEVICE char* shared_bytes() {
  extern __shared__ __align__(128) char bytes[];
  return bytes;
}
GYR_DEVICE void judge_shared(const void*, int, Touch, Site) {}
GYR_DEVICE void judge_global(const void*, int, bool, Touch, Site) {}

#else

inline int thread_index() { return Block::thread().number; }
inline int block_threads() { return Block::current().grid().threads; }
inline Index block_index() { return Block::current().number(); }
inline Index grid_blocks() { return Block::current().grid().blocks; }
inline void sync_block(const Site& site = Site::current()) { Block::current().meet_all(site); }
template <class V>
V shuffle_xor(V v, int with, const Site& site = Site::current()) {
  struct Lane {
    V given;
    int with;
    V taken;
  } lane{v, with, V()};
  Block& block = Block::current();
  block.meet(Meeting::shuffle, &lane, site, [&] {
    for (int l = 0; l < warp_size; ++l) {
      Lane& to = block.argument<Lane>(l);
      to.taken = block.argument<Lane>(l ^ to.with).given;
    }
  });
  return lane.taken;
}
inline std::uint32_t ballot(bool says, const Site& site = Site::current()) {
  struct Lane {
    bool says;
    std::uint32_t all;
  } lane{says, 0};
  Block& block = Block::current();
  block.meet(Meeting::ballot, &lane, site, [&] {
    std::uint32_t all = 0;
    for (int l = 0; l < warp_size; ++l) all |= std::uint32_t(block.argument<Lane>(l).says) << l;
    for (int l = 0; l < warp_size; ++l) block.argument<Lane>(l).all = all;
  });
  return lane.all;
}
inline int lowest_bit(std::uint32_t bits) { return std::countr_zero(bits); }
inline char* shared_bytes() { return Block::current().shared(); }
inline void judge_shared(const void* p, int bytes, Touch touch, const Site& site) {
  if (Block::current().checked()) Block::current().judge_shared(p, bytes, touch, site);
}
inline void judge_global(const void* p, int bytes, bool inside, Touch touch, const Site& site) {
  Block& block = Block::current();
  if (!inside) block.violation("an access outside the tensor", site);
  if (block.checked()) block.judge_global(p, bytes, touch, site);
}

#endif

GYR_DEVICE int lane() { return thread_index() % warp_size; }
GYR_DEVICE int warp() { return thread_index() / warp_size; }
GYR_DEVICE int block_warps() { return block_threads() / warp_size; }

// Numbers in the device's memory: a matrix whose rows are `stride` apart, or one row. As the argument of a kernel it also says what the kernel may
// touch: writes too unless T is const.
template <class T>
class Global {
 public:
  Global() = default;
  Global(const Matrix<T>& x) : data_(x.data), rows_(x.rows), columns_(x.columns), stride_(x.stride) {}
  Global(const Tensor1<T>& x) : data_(x.data()), rows_(1), columns_(x.span()), stride_(x.span()) {}
  Global(const Tensor2<T>& x) : Global(Matrix<T>(x)) {}
  template <class U>
  requires(std::is_same_v<const U, T>) Global(const Global<U>& x) : data_(x.data_), rows_(x.rows_), columns_(x.columns_), stride_(x.stride_) {}
  template <class U>
  requires(std::is_same_v<const U, T>) Global(const Matrix<U>& x) : Global(Matrix<T>(x)) {}
  template <class U>
  requires(std::is_same_v<const U, T>) Global(const Tensor1<U>& x) : Global(Tensor1<T>(x)) {}
  template <class U>
  requires(std::is_same_v<const U, T>) Global(const Tensor2<U>& x) : Global(Tensor2<T>(x)) {}

  GYR_FUNCTION Index rows() const { return rows_; }
  GYR_FUNCTION Index columns() const { return columns_; }
  GYR_FUNCTION explicit operator bool() const { return data_ != nullptr; }
  // Whether packs of N may begin at every N-th column of each row.
  template <int N>
  bool packs() const {
    constexpr auto grain = alignof(Pack<T, N>);
    return reinterpret_cast<std::uintptr_t>(data_) % grain == 0 && columns_ % N == 0 && (rows_ <= 1 || stride_ * sizeof(T) % grain == 0);
  }

  GYR_DEVICE T load(Index r, Index c, const Site& site = Site::current()) const {
    judge_global(at(r, c), sizeof(T), inside(r, c, 1), Touch::read, site);
    return *at(r, c);
  }
  GYR_DEVICE void store(Index r, Index c, T v, const Site& site = Site::current()) const {
    judge_global(at(r, c), sizeof(T), inside(r, c, 1), Touch::write, site);
    *at(r, c) = v;
  }
  template <int N>
  GYR_DEVICE Pack<std::remove_const_t<T>, N> load_pack(Index r, Index c, const Site& site = Site::current()) const {
    judge_global(at(r, c), int(alignof(Pack<T, N>)), inside(r, c, N), Touch::read, site);
    return *reinterpret_cast<const Pack<std::remove_const_t<T>, N>*>(at(r, c));
  }
  template <int N>
  GYR_DEVICE void store_pack(Index r, Index c, const Pack<T, N>& v, const Site& site = Site::current()) const {
    judge_global(at(r, c), int(alignof(Pack<T, N>)), inside(r, c, N), Touch::write, site);
    *reinterpret_cast<Pack<T, N>*>(at(r, c)) = v;
  }
  GYR_DEVICE T load(Index i, const Site& site = Site::current()) const { return load(0, i, site); }
  GYR_DEVICE void store(Index i, T v, const Site& site = Site::current()) const { store(0, i, v, site); }

 private:
  template <class U>
  friend class Global;
  GYR_FUNCTION T* at(Index r, Index c) const { return data_ + r * stride_ + c; }
  GYR_FUNCTION bool inside(Index r, Index c, Index n) const { return r >= 0 && r < rows_ && c >= 0 && c + n <= columns_; }

  T* data_ = nullptr;
  Index rows_ = 0, columns_ = 0, stride_ = 0;
};

// Numbers in the memory that the threads of a block share.
template <class T>
class Shared {
 public:
  GYR_DEVICE explicit Shared(int first_byte = 0) : data_(reinterpret_cast<T*>(shared_bytes() + first_byte)) {}
  GYR_DEVICE T load(int i, const Site& site = Site::current()) const {
    judge_shared(data_ + i, sizeof(T), Touch::read, site);
    return data_[i];
  }
  GYR_DEVICE void store(int i, T v, const Site& site = Site::current()) const {
    judge_shared(data_ + i, sizeof(T), Touch::write, site);
    data_[i] = v;
  }

 private:
  T* data_;
};

// The sum over a warp, which every lane gets; all add in one order.
template <class V>
GYR_DEVICE V warp_sum(V v) {
  for (int with = warp_size / 2; with > 0; with /= 2) v += shuffle_xor(v, with);
  return v;
}
template <class V>
GYR_DEVICE V warp_largest(V v) {
  for (int with = warp_size / 2; with > 0; with /= 2) {
    const V other = shuffle_xor(v, with);
    v = other > v ? other : v;
  }
  return v;
}

// The same over a block. `room`: a number for each warp, which may be used again behind it.
template <class V, class Fold>
GYR_DEVICE V block_fold(V v, const Shared<V>& room, const Fold& fold) {
  if (lane() == 0) room.store(warp(), v);
  sync_block();
  V all = room.load(0);
  for (int w = 1; w < block_warps(); ++w) all = fold(all, room.load(w));
  sync_block();
  return all;
}
template <class V>
GYR_DEVICE V block_sum(V v, const Shared<V>& room) {
  return block_fold(warp_sum(v), room, [](V a, V b) { return a + b; });
}

}  // namespace gyr::cuda
