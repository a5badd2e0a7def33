// SPDX-License-Identifier: BSD-3-Clause
// Who touched memory last, of a checked machine. A line of memory begins as one unit, which has one cell, and is divided as accesses are smaller.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr::cuda {

// One access.
struct Access {
  std::int32_t block = 0;
  std::uint16_t thread = 0, line = 0;             // of the source, from 1 on
  std::uint32_t block_epoch = 0, warp_epoch = 0;  // barriers before it: of the block, all of its warp

  bool made() const { return line > 0; }
};

// What happened to a unit of memory last.
struct Cell {
  Access write, read;
  std::uint32_t reading_warps = 0;  // those of read's block that read since its last barrier
  bool read_by_blocks = false;      // by more than one since the last write
  bool copied_later = false;        // the target of a copy that its thread has not waited for
  std::uint32_t fences = 0;         // that its writer had behind it before the write
};

struct CellLine {
  static constexpr Index bytes = 16;
  Index unit = bytes;             // bytes that have one cell
  std::array<Cell, bytes> cells;  // by the first byte of a unit

  // Units such that an access of so many bytes, which begins on a multiple of them, is one of whole units. copied(i, j): j is of a unit of its own
  // now.
  template <class Copied>
  void divide(Index accessed, const Copied& copied) {
    for (const Index most = accessed & -accessed; unit > most; unit /= 2)
      for (Index i = 0; i < bytes; i += unit) {
        cells[std::size_t(i + unit / 2)] = cells[std::size_t(i)];
        copied(i, i + unit / 2);
      }
  }
};

// Of global memory, by addresses.
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

// Of shared memory, by bytes from its beginning. Blocks have it one after the other: what an earlier one has left is none of a later one's.
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
  // Of the unit that begins there, by each warp of the block: barriers before it, and 1.
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
