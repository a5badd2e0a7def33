// SPDX-License-Identifier: BSD-3-Clause
// Work distribution for routed rows: one thread per row with few elements, or one warp per expert.
#pragma once

#include "kernels/cuda/rowwise/rows.hpp"

namespace gyr::cuda {

inline Grid grid_of_threads(Index rows) { return {std::min(ceil_div(rows, Index(usual_threads)), most_blocks), usual_threads}; }
inline Grid grid_of_experts(Index experts) { return {std::min(ceil_div(experts, Index(usual_warps)), most_blocks), usual_threads}; }

// Calls f(r) for every row r of this thread.
template <class F>
GYR_DEVICE void each_row_of_thread(Index rows, const F& f) {
  for (Index r = block_index() * block_threads() + thread_index(); r < rows; r += grid_blocks() * block_threads()) f(r);
}

// One warp scans all slots (one choice of a row each) in order, 32 at a time, and calls f(slot, which). `slot` is this
// lane's slot. Bit l of `which` is set if the slot of lane l is assigned to the expert. All experts together load E R K
// values, from cache.
template <class F>
GYR_DEVICE void each_slot(const Global<const std::int32_t>& chosen, Index expert, const F& f) {
  for (Index first = 0; first < chosen.columns(); first += warp_size) {
    const Index slot = first + lane();
    f(slot, ballot(slot < chosen.columns() && chosen.load(slot) == expert));
  }
}

GYR_DEVICE int count_slots(const Global<const std::int32_t>& chosen, Index expert) {
  int count = 0;
  each_slot(chosen, expert, [&](Index, std::uint32_t which) { count += bits_of(which); });
  return count;
}

}  // namespace gyr::cuda
