// SPDX-License-Identifier: BSD-3-Clause
// Tiles on their way to shared memory while others are computed with.
#pragma once

#include "kernels/cuda/machine/primitives.hpp"

namespace gyr::cuda {

// bring(step, place) starts the copies of a step, take(step, place) reads what they brought; between two steps all threads meet.
// meanwhile(): while the first are under way.
template <int stages, class LoadTile, class Take, class Meanwhile>
GYR_DEVICE void pipeline(int steps, const LoadTile& load_tile, const Take& take, const Meanwhile& meanwhile) {
  for (int i = 0; i < stages - 1; ++i) {
    if (i < steps) load_tile(i, i);
    commit_copies();
  }
  meanwhile();
  for (int i = 0, place = 0; i < steps; ++i) {
    wait_copies<stages - 2>();
    sync_block();
    const int free = place == 0 ? stages - 1 : place - 1;
    if (i + stages - 1 < steps) load_tile(i + stages - 1, free);
    commit_copies();
    take(i, place);
    place = place + 1 < stages ? place + 1 : 0;
  }
  wait_copies<0>();
}

template <int stages, class LoadTile, class Take>
GYR_DEVICE void pipeline(int steps, const LoadTile& load_tile, const Take& take) {
  pipeline<stages>(steps, load_tile, take, [] {});
}

}  // namespace gyr::cuda
