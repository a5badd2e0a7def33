// SPDX-License-Identifier: BSD-3-Clause
// Applies BPE merges to one piece of text. Among all adjacent pairs with a merge, the earliest merge in the list is
// applied first, and for equal merges the leftmost pair. The time is O(n log n) for any n symbols.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "src/tokenizer/pair_map.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

class PieceMerger {
 public:
  // Replaces `symbols` (token ids) by the merged tokens. `rank_of` maps a pair of ids to its index in `merges`.
  void merge(std::vector<std::int32_t>& symbols, const PairMap& rank_of, std::span<const Merge> merges) {
    const auto n = std::int64_t(symbols.size());
    next_.resize(std::size_t(n));
    previous_.resize(std::size_t(n));
    heap_.clear();
    for (std::int64_t i = 0; i < n; ++i) {
      next_[std::size_t(i)] = i + 1;
      previous_[std::size_t(i)] = i - 1;
      if (i + 1 < n) offer(symbols, rank_of, i, i + 1);
    }
    std::make_heap(heap_.begin(), heap_.end(), later);

    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      const auto [rank, at] = heap_.back();
      heap_.pop_back();
      const Merge& merge = merges[rank];
      const std::int64_t right = next_[std::size_t(at)];
      // Candidates are not removed when a neighbour changes. One that no longer matches the symbols is skipped.
      if (symbols[std::size_t(at)] != merge.left || right >= n || symbols[std::size_t(right)] != merge.right) continue;
      symbols[std::size_t(at)] = merge.result;
      symbols[std::size_t(right)] = gone;
      const std::int64_t after = next_[std::size_t(at)] = next_[std::size_t(right)];
      if (after < n) previous_[std::size_t(after)] = at;
      if (after < n && offer(symbols, rank_of, at, after)) std::push_heap(heap_.begin(), heap_.end(), later);
      const std::int64_t before = previous_[std::size_t(at)];
      if (before >= 0 && offer(symbols, rank_of, before, at)) std::push_heap(heap_.begin(), heap_.end(), later);
    }
    std::erase(symbols, gone);
  }

 private:
  static constexpr std::int32_t gone = -1;
  struct Candidate {
    std::uint32_t rank;
    std::int64_t at;  // index of the left symbol
  };
  static bool later(const Candidate& a, const Candidate& b) { return a.rank != b.rank ? a.rank > b.rank : a.at > b.at; }

  bool offer(const std::vector<std::int32_t>& symbols, const PairMap& rank_of, std::int64_t left, std::int64_t right) {
    const std::uint32_t rank = rank_of.find(symbols[std::size_t(left)], symbols[std::size_t(right)]);
    if (rank == PairMap::none) return false;
    heap_.push_back({rank, left});
    return true;
  }

  std::vector<std::int64_t> next_, previous_;
  std::vector<Candidate> heap_;
};

}  // namespace gyr
