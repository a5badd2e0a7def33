// SPDX-License-Identifier: BSD-3-Clause
// Last accesses to memory, recorded by a checked machine to find races. A line is 16 bytes of memory. It starts as one
// unit, whose last accesses are in one cell, and is divided into smaller units when an access is smaller than its
// units.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr::cuda {

// One access to memory.
struct Access {
  std::int32_t block = 0;
  std::uint16_t thread = 0, line = 0;             // thread: index in the block; line: source line, from 1
  std::uint32_t block_epoch = 0, warp_epoch = 0;  // number of barriers before the access: of the block, and of the thread's warp

  bool made() const { return line > 0; }
};

// Last accesses to one unit of memory.
struct Cell {
  Access write, read;
  std::uint32_t reading_warps = 0;  // bit mask of the warps of read.block that read the unit since the last barrier of the block
  bool read_by_blocks = false;      // true: the unit was read by more than one block since the last write
  bool copied_later = false;        // true: the unit is the target of an asynchronous copy that its thread has not waited for
  std::uint32_t fences = 0;         // number of proxy fences that the writing thread had executed before the write
};

struct CellLine {
  static constexpr Index bytes = 16;
  Index unit = bytes;             // bytes of memory covered by one cell
  std::array<Cell, bytes> cells;  // indexed by the first byte of a unit

  // Divides the units until an access of `accessed` bytes at an aligned offset covers only full units. copied(i, j):
  // the cell at i was copied to a new unit at j.
  template <class Copied>
  void divide(Index accessed, const Copied& copied) {
    for (const Index most = accessed & -accessed; unit > most; unit /= 2)
      for (Index i = 0; i < bytes; i += unit) {
        cells[std::size_t(i + unit / 2)] = cells[std::size_t(i)];
        copied(i, i + unit / 2);
      }
  }
};

// Cells of global memory, by address.
class GlobalCells {
 public:
  CellLine& line(std::uintptr_t address, Index accessed) {
    const std::uintptr_t number = address / CellLine::bytes;
    Found& found = lately_[number % lately_.size()];
    if (!found.line || found.number != number) found = {number, &lines_[number]};
    found.line->divide(accessed, [](Index, Index) {});
    return *found.line;
  }

 private:
  struct Found {
    std::uintptr_t number = 0;
    CellLine* line = nullptr;
  };
  std::unordered_map<std::uintptr_t, CellLine> lines_;
  std::array<Found, 256> lately_;
};

// Cells of shared memory, by offset. Blocks run one after the other, so the cells of an earlier block are discarded.
class SharedCells {
 public:
  SharedCells(Index bytes, int warps) : warps_(std::size_t(warps)), lines_(std::size_t((bytes + CellLine::bytes - 1) / CellLine::bytes)) {
    last_reads_.resize(lines_.size() * CellLine::bytes * warps_);
  }
  CellLine& line(Index at, Index accessed, Index block) {
    const Index first = at / CellLine::bytes * CellLine::bytes;
    Line& line = lines_[std::size_t(at / CellLine::bytes)];
    if (line.block != block) {
      line.block = block, line.unit = CellLine::bytes, line.cells[0] = {};
      std::fill_n(last_reads(first), warps_, 0u);
    }
    line.divide(accessed, [&](Index i, Index j) { std::copy_n(last_reads(first + i), warps_, last_reads(first + j)); });
    return line;
  }
  // For the unit at this offset, one entry per warp of the block: the number of barriers before its last read, plus 1;
  // 0 if it has not read.
  std::uint32_t* last_reads(Index at) { return &last_reads_[std::size_t(at) * warps_]; }

 private:
  struct Line : CellLine {
    Index block = -1;
  };
  std::size_t warps_;
  std::vector<Line> lines_;
  std::vector<std::uint32_t> last_reads_;
};

}  // namespace gyr::cuda
