// SPDX-License-Identifier: BSD-3-Clause
// Emulation of wgmma (warpgroup matrix multiply-accumulate). A wgmma is issued immediately but computed as late as its
// wait allows. Until then its accumulators hold NaN. Its operands in shared memory and registers are read at the wait,
// and must not have changed since the wgmma was issued.
#pragma once

#include <map>

#include "kernels/cuda/emulation/machine.hpp"

namespace gyr::cuda {

inline constexpr int group_warps = 4;

// Fields of a 64-bit matrix descriptor (PTX, "Matrix Descriptor Format"), in bytes.
struct DescribedMatrix {
  explicit DescribedMatrix(std::uint64_t bits);

  Index start, leading, stride;
  int base, swizzle;
};

// Offset in shared memory of a 16-byte chunk of a bf16 matrix (PTX, "Canonical Layouts"). With the 128-byte swizzle,
// address bits 4 to 6 are XORed with bits 7 to 9. By rows (K-major): columns [8 h, 8 h + 8) of row i. By columns
// (MN-major): rows [8 i, 8 i + 8) of column k.
Index chunk_by_rows(const DescribedMatrix&, int i, int h);
Index chunk_by_columns(const DescribedMatrix&, int i, int k);

// Operands of one lane for a wgmma d (64, columns) = or += a (64, 16) b (16, columns).
struct GroupOperands {
  float* d;  // this lane's columns / 2 accumulators
  int columns;
  bool adds;
  const std::uint32_t* a;  // the lane's four registers of a; null: a is in shared memory, by rows
  std::uint64_t a_matrix, b_matrix;
  bool b_by_columns;  // true: b is stored by columns (MN-major); false: by rows (K-major)
};

// State of all warpgroups of a block.
class Warpgroups {
 public:
  explicit Warpgroups(Block&);

  // wgmma fence of the current thread: later wgmmas may use these registers.
  void fence(const void* registers, std::size_t bytes);
  // Issues, commits or waits for wgmmas of the current warp. Called once per warp by its last lane; the operands of
  // lane l are argument<GroupOperands>(l).
  void enqueue(const Site&);
  void commit();
  void wait(int but, const Site&);

 private:
  struct Wgmma {
    Site site;
    std::array<GroupOperands, warp_size> lanes;
    std::array<std::array<std::uint32_t, 4>, warp_size> a;  // registers of a when the wgmma was issued
    std::vector<char> read;                                 // shared-memory operands when the wgmma was issued
  };
  struct Sum {
    int wgmmas = 0;             // number of wgmmas in flight that add to these accumulators
    std::vector<float> values;  // accumulators of all lanes
  };
  struct Warp {
    std::vector<std::vector<Wgmma>> groups{1};  // commit groups that have not been waited for; the last one is open
    std::map<const float*, Sum> sums;           // unfinished sums, by the address of the first lane's accumulators
    std::size_t issued = 0;
  };
  struct Issued {
    unsigned line;
    int columns;
    std::uint64_t a_matrix, b_matrix;
    bool operator==(const Issued&) const = default;
  };
  Warp& mine();
  void agree(const Wgmma&);
  void increase_registers(Warp&, Wgmma&);
  std::vector<Index> chunks(const Wgmma&) const;
  std::vector<char> read(const Wgmma&);
  void count(const Wgmma&);
  void complete(Warp&, const Wgmma&);
  void finish(Warp&, const Wgmma&);

  Block& block_;
  std::vector<Warp> warps_;
  std::vector<std::vector<Issued>> issued_;                       // wgmmas issued by each warpgroup, recorded by the warp that issues each first
  std::vector<std::map<const char*, std::vector<char>>> fenced_;  // for each thread: contents of its registers at its last fence
};

}  // namespace gyr::cuda
