// SPDX-License-Identifier: BSD-3-Clause
// Multi-stage cp.async pipeline: tiles are loaded into shared memory while earlier tiles are used.
#pragma once

#include "kernels/cuda/machine/primitives.hpp"

namespace gyr::cuda {

// load_tile(step, place) issues the copies of a step into stage `place`. take(step, place) uses the loaded tile. All
// threads of the block synchronise between two steps. meanwhile() runs while the first copies are in flight.
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
