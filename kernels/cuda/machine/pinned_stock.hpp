// SPDX-License-Identifier: BSD-3-Clause
// Pool of pinned host memory, whose pieces are reused.
#pragma once

#include <map>

#include "kernels/cuda/machine/runtime.hpp"

namespace gyr::cuda {

class PinnedStock {
 public:
  PinnedStock() = default;
  PinnedStock(const PinnedStock&) = delete;
  PinnedStock& operator=(const PinnedStock&) = delete;
  ~PinnedStock() {
    for (const auto& [bytes, memory] : free_) cudaFreeHost(memory);
  }

  struct Piece {
    Index bytes = 0;
    void* memory = nullptr;
  };
  // Returns a piece of at least `bytes` bytes.
  Piece take(Index bytes) {
    if (const auto found = free_.lower_bound(bytes); found != free_.end()) {
      const Piece piece{found->first, found->second};
      free_.erase(found);
      return piece;
    }
    Piece piece{bytes, nullptr};
    check(cudaMallocHost(&piece.memory, std::size_t(bytes)), "allocation of pinned host memory");
    return piece;
  }
  void give_back(const Piece& piece) { free_.emplace(piece.bytes, piece.memory); }

 private:
  std::multimap<Index, void*> free_;  // free pieces by size in bytes
};

}  // namespace gyr::cuda
