// SPDX-License-Identifier: BSD-3-Clause
// Applies BPE merges to one piece of text. Among all adjacent pairs with a merge, the earliest merge in the list is
// applied first, and for equal merges the leftmost pair. For n symbols, the time is O(n log n), and the memory is 8 n
// bytes for the links and at most 16 n for the candidates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/error.hpp"
#include "src/tokenizer/pair_map.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

class PieceMerger {
 public:
  // Replaces `symbols` (token ids) by the merged tokens. `rank_of` maps a pair of ids to its index in `merges`.
  // Exit::data for more than 2^32 - 1 symbols.
  void merge(std::vector<std::int32_t>& symbols, const PairMap& rank_of, std::span<const Merge> merges) {
    require(symbols.size() < none, Exit::data, "the tokenizer cannot divide a text of {} symbols; split it into documents of at most {}",
            symbols.size(), none - 1);
    const auto n = Place(symbols.size());
    next_.resize(n);
    previous_.resize(n);
    heap_.clear();
    for (Place i = 0; i < n; ++i) {
      next_[i] = i + 1;
      previous_[i] = i == 0 ? none : i - 1;
      if (i + 1 < n) offer(symbols, rank_of, i, i + 1);
    }
    std::make_heap(heap_.begin(), heap_.end(), later);

    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      const auto [rank, at] = heap_.back();
      heap_.pop_back();
      const Merge& merge = merges[rank];
      const Place right = next_[at];
      // Candidates are not removed when a neighbour changes. One that no longer matches the symbols is skipped.
      if (symbols[at] != merge.left || right >= n || symbols[right] != merge.right) continue;
      symbols[at] = merge.result;
      symbols[right] = gone;
      const Place after = next_[at] = next_[right];
      if (after < n) previous_[after] = at;
      if (after < n && offer(symbols, rank_of, at, after)) std::push_heap(heap_.begin(), heap_.end(), later);
      const Place before = previous_[at];
      if (before != none && offer(symbols, rank_of, before, at)) std::push_heap(heap_.begin(), heap_.end(), later);
    }
    std::erase(symbols, gone);
  }

 private:
  using Place = std::uint32_t;  // index of a symbol; 32 bits halve the memory of a long text
  static constexpr Place none = ~Place(0);
  static constexpr std::int32_t gone = -1;
  struct Candidate {
    std::uint32_t rank;
    Place at;  // index of the left symbol
  };
  static bool later(const Candidate& a, const Candidate& b) { return a.rank != b.rank ? a.rank > b.rank : a.at > b.at; }

  bool offer(const std::vector<std::int32_t>& symbols, const PairMap& rank_of, Place left, Place right) {
    const std::uint32_t rank = rank_of.find(symbols[left], symbols[right]);
    if (rank == PairMap::none) return false;
    heap_.push_back({rank, left});
    return true;
  }

  std::vector<Place> next_, previous_;
  std::vector<Candidate> heap_;
};

}  // namespace gyr
