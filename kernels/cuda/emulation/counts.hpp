// SPDX-License-Identifier: BSD-3-Clause
// Counts the GPU work of kernels on the emulated machine: tensor instructions, bytes of global memory, shared-memory accesses and bank conflicts.
// Caches, the order of warps and compiler optimisations are not modelled.
//
// Lanes run one after the other, so the accesses of a warp are reassembled. Between two operations at which all lanes of a warp meet (barriers,
// shuffles, ballots, mma, ldmatrix), the n-th access of each lane at one line and column of the source, with one size, counts as one instruction.
// This is correct if all lanes of a warp make the same iterations of a loop or leave it early. It is wrong if a lane skips an iteration and makes
// later ones, or if different lanes call a helper function from two places.
//
// A shared-memory access of a warp takes as many transactions as the most loaded bank has distinct words of 4 bytes.
// Words are counted over all lanes if each accesses up to 4 bytes, over half a warp for 8 bytes, and over a quarter for
// 16 bytes (such as one matrix of load_matrix_x4, that is ldmatrix). Equal words count once.
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>

#include "kernels/cuda/emulation/machine.hpp"

namespace gyr::cuda {

enum class Space { shared, global };

struct SharedAccesses {
  Index requests = 0, transactions = 0, least = 0;  // least: minimum number of transactions for the bytes

  Index conflicts() const { return transactions - least; }
  void add(const SharedAccesses&);
};

struct GlobalAccesses {
  Index bytes = 0, distinct = 0;  // bytes: sum over all instructions of threads; distinct: each byte of memory counted once
  struct OfSize {
    Index instructions = 0;           // load or store instructions, counted per thread
    Index requests = 0, sectors = 0;  // per warp: requests, and 32-byte sectors that they touch
  };
  std::array<OfSize, 5> by_size = {};  // indexed by log2 of the bytes of an instruction

  const OfSize& of_bytes(int n) const;
  OfSize all() const;
  void add(const GlobalAccesses&);
};

// Source line of a kernel that accesses shared memory.
struct SharedLine {
  std::string file;
  unsigned line = 0;
  auto operator<=>(const SharedLine&) const = default;
};

// Counts of one grid, or summed over several grids.
struct GridCounts {
  std::string kernel;
  Grid grid;
  Index grids = 1;
  Index mma_instructions = 0;  // m16n8k16 tensor instructions of warps, 4096 operations each
  GlobalAccesses loaded, stored;
  std::map<SharedLine, SharedAccesses> shared;

  SharedAccesses all_shared() const;
  void add(const GridCounts&);
  // Text with one line for each source line that has bank conflicts.
  std::string conflicts() const;
};

// Counts the grids that run during its lifetime. A nested Counts object takes over while it exists.
class Counts {
 public:
  explicit Counts(Machine& machine = Machine::instance()) : machine_(machine), before_(std::exchange(machine.counts, this)) {}
  ~Counts() { machine_.counts = before_; }
  Counts(const Counts&) = delete;
  Counts& operator=(const Counts&) = delete;

  const std::vector<GridCounts>& grids() const { return grids_; }
  GridCounts all() const;
  std::string table() const;  // text table with one row per kernel

 private:
  friend class GridCounter;
  Machine& machine_;
  Counts* before_;
  std::vector<GridCounts> grids_;
};

// Counts one grid. Its blocks run one after the other.
class GridCounter {
 public:
  GridCounter(Counts&, const char* kernel, const Grid&);
  ~GridCounter();

  void mma_instructions(Index n) { counts_.mma_instructions += n; }
  // `address`: an offset in shared memory, or an address in global memory.
  void access(Space, Touch, std::uintptr_t address, int bytes, const Thread&, const Site&);
  // Four matrices of 8 rows of 16 bytes in shared memory, read by one ldmatrix instruction. `rows`: start of each row.
  void matrices(const std::array<std::uintptr_t, warp_size>& rows, const Site&);
  void sync_with(int warp);  // called when all remaining lanes of the warp have reached the same operation
  void end_epoch();          // called at a barrier of the block: sync_with() for all its warps

 private:
  struct Instruction {
    const char* file;
    unsigned line, column;
    Space space;
    Touch touch;
    int bytes;
    auto operator<=>(const Instruction&) const = default;
  };
  // Addresses of one instruction of a warp.
  struct Request {
    std::uint32_t lanes = 0;
    std::array<std::uintptr_t, warp_size> address;
  };
  struct Passes {
    std::array<int, warp_size> made = {};  // number of accesses by each lane
    std::vector<Request> requests;
  };
  struct Line {
    std::uint64_t read = 0, written = 0;  // bytes of the line that were read, or written: bit b is byte b of 64
  };
  using Warp = std::map<Instruction, Passes>;

  void finish(const Instruction&, const Request&);
  GlobalAccesses& global(Touch touch) { return touch == Touch::read ? counts_.loaded : counts_.stored; }

  Counts& to_;
  GridCounts counts_;
  std::vector<Warp> warps_;
  std::unordered_map<std::uintptr_t, Line> lines_;  // bytes accessed in each line (64 bytes) of global memory, by line number
};

}  // namespace gyr::cuda
