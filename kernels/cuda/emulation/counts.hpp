// SPDX-License-Identifier: BSD-3-Clause
// What kernels ask of a GPU, counted by the emulated machine: tensor instructions, bytes of global memory, accesses of shared memory and the
// conflicts of its banks. Nothing is known of caches, of the order of warps, or of what a compiler moves.
//
// Lanes run one after the other, so an access of a warp is put together again: between two places where all lanes of a warp meet (barriers, shuffles,
// ballots, products, loads of matrices), the n-th access of each lane at one line and column of the source, of one size, is taken for one
// instruction. This is what a warp does whose lanes make the same passes of a loop, or leave it early; it is not where a lane leaves out a pass and
// makes later ones, or where a helper is called from two places by different lanes.
//
// A warp's access of shared memory takes as many transactions as the bank that most of its words of 4 bytes lie in has: of all lanes at once where
// each has up to 4 bytes, of halves of a warp where each has 8, of quarters where each has 16 (a matrix of load_matrix_x4 is one). Equal words count
// once.
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>

#include "kernels/cuda/emulation/machine.hpp"

namespace gyr::cuda {

enum class Space { shared, global };

struct SharedAccesses {
  Index requests = 0, transactions = 0, least = 0;  // least: transactions that their bytes need

  Index conflicts() const { return transactions - least; }
  void add(const SharedAccesses&);
};

struct GlobalAccesses {
  Index bytes = 0, distinct = 0;  // of all instructions of threads; each byte of memory once
  struct OfSize {
    Index instructions = 0;           // of threads
    Index requests = 0, sectors = 0;  // of warps, and the runs of 32 bytes that each of them meets
  };
  std::array<OfSize, 5> by_size = {};  // by log2 of an instruction's bytes

  const OfSize& of_bytes(int n) const;
  OfSize all() const;
  void add(const GlobalAccesses&);
};

// A line of a kernel that touches shared memory.
struct SharedLine {
  std::string file;
  unsigned line = 0;
  auto operator<=>(const SharedLine&) const = default;
};

// What one grid did, or several.
struct GridCounts {
  std::string kernel;
  Grid grid;
  Index grids = 1;
  Index products = 0;  // tensor instructions of warps, m16n8k16: 4096 operations each
  GlobalAccesses loaded, stored;
  std::map<SharedLine, SharedAccesses> shared;

  SharedAccesses all_shared() const;
  void add(const GridCounts&);
  // The lines of shared memory with conflicts, a line of text each.
  std::string conflicts() const;
};

// Counts the grids that run while it exists; another one within it counts in its place.
class Counts {
 public:
  explicit Counts(Machine& machine = Machine::instance()) : machine_(machine), before_(std::exchange(machine.counts, this)) {}
  ~Counts() { machine_.counts = before_; }
  Counts(const Counts&) = delete;
  Counts& operator=(const Counts&) = delete;

  const std::vector<GridCounts>& grids() const { return grids_; }
  GridCounts all() const;
  std::string table() const;  // by kernel

 private:
  friend class GridCounter;
  Machine& machine_;
  Counts* before_;
  std::vector<GridCounts> grids_;
};

// Counts one grid, whose blocks run one after the other.
class GridCounter {
 public:
  GridCounter(Counts&, const char* kernel, const Grid&);
  ~GridCounter();

  void products(Index n) { counts_.products += n; }
  // address: in shared memory, from its beginning
  void access(Space, Touch, std::uintptr_t address, int bytes, const Thread&, const Site&);
  // Four matrices of 8 rows of 16 bytes in shared memory, which one instruction reads: where each row begins.
  void matrices(const std::array<std::uintptr_t, warp_size>& rows, const Site&);
  void sync_with(int warp);  // all lanes that are left have come to one place
  void end_epoch();          // of the block: so have those of all warps

 private:
  struct Instruction {
    const char* file;
    unsigned line, column;
    Space space;
    Touch touch;
    int bytes;
    auto operator<=>(const Instruction&) const = default;
  };
  // One instruction of a warp.
  struct Request {
    std::uint32_t lanes = 0;
    std::array<std::uintptr_t, warp_size> address;
  };
  struct Passes {
    std::array<int, warp_size> made = {};  // by each lane
    std::vector<Request> requests;
  };
  struct Line {
    std::uint64_t read = 0, written = 0;  // bit b: byte b of 64
  };
  using Warp = std::map<Instruction, Passes>;

  void finish(const Instruction&, const Request&);
  GlobalAccesses& global(Touch touch) { return touch == Touch::read ? counts_.loaded : counts_.stored; }

  Counts& to_;
  GridCounts counts_;
  std::vector<Warp> warps_;
  std::unordered_map<std::uintptr_t, Line> lines_;  // of global memory
};

}  // namespace gyr::cuda
