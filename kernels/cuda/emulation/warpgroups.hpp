// SPDX-License-Identifier: BSD-3-Clause
// Products of warpgroups on the emulated machine: told now, computed as late as a wait for them allows. Until then what they add to is NaN, and they
// read what shared memory and registers hold when they are waited for, which must be what was there when they were told.
#pragma once

#include <map>

#include "kernels/cuda/emulation/machine.hpp"

namespace gyr::cuda {

inline constexpr int group_warps = 4;

// What a 64-bit matrix descriptor says (PTX, "Matrix Descriptor Format"), in bytes.
struct DescribedMatrix {
  explicit DescribedMatrix(std::uint64_t bits);

  Index start, leading, stride;
  int base, swizzle;
};

// Where 16 bytes of a matrix of bf16 lie, from the beginning of shared memory (PTX, "Canonical Layouts"; 128-byte swizzle: bits 4 to 6 of an address
// are those and, exclusively, bits 7 to 9). By rows: columns [8 h, 8 h + 8) of row i, along which products are summed. By columns: rows [8 i, 8 i +
// 8) of column k, along which they are not.
Index chunk_by_rows(const DescribedMatrix&, int i, int h);
Index chunk_by_columns(const DescribedMatrix&, int i, int k);

// One lane's part of a product d (64, columns) = or += a (64, 16) b (16, columns).
struct GroupOperands {
  float* d;  // its columns / 2 numbers
  int columns;
  bool adds;
  const std::uint32_t* a;  // its four registers, or null: a lies in shared memory, by rows
  std::uint64_t a_matrix, b_matrix;
  bool b_by_columns;  // else its columns are what chunk_by_rows calls rows
};

// Those of a block.
class Warpgroups {
 public:
  explicit Warpgroups(Block&);

  // The current thread: registers that products told from now on may take.
  void fence(const void* registers, std::size_t bytes);
  // The current warp, for which the last lane speaks; lane l brings argument<GroupOperands>(l).
  void enqueue(const Site&);
  void commit();
  void wait(int but, const Site&);

 private:
  struct Product {
    Site site;
    std::array<GroupOperands, warp_size> lanes;
    std::array<std::array<std::uint32_t, 4>, warp_size> a;  // as they were told
    std::vector<char> read;                                 // of shared memory, as it was told
  };
  struct Sum {
    int products = 0;            // that still add to it
    std::vector<float> numbers;  // of all lanes
  };
  struct Warp {
    std::vector<std::vector<Product>> groups{1};  // not waited for; the last one is open
    std::map<const float*, Sum> sums;             // by the first lane's place
    std::size_t issued = 0;
  };
  struct Issued {
    unsigned line;
    int columns;
    std::uint64_t a_matrix, b_matrix;
    bool operator==(const Issued&) const = default;
  };
  Warp& mine();
  void agree(const Product&);
  void increase_registers(Warp&, Product&);
  std::vector<Index> chunks(const Product&) const;
  std::vector<char> read(const Product&);
  void count(const Product&);
  void complete(Warp&, const Product&);
  void finish(Warp&, const Product&);

  Block& block_;
  std::vector<Warp> warps_;
  std::vector<std::vector<Issued>> issued_;                       // by each warpgroup, by whichever of its warps was first
  std::vector<std::map<const char*, std::vector<char>>> fenced_;  // registers of each thread as its last fence found them
};

}  // namespace gyr::cuda
