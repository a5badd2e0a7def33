// SPDX-License-Identifier: BSD-3-Clause
// Mixer parallelism: the attention and the SSM of a hybrid block run concurrently on different tensor-parallel ranks.
// The first ranks compute the attention, the others the SSM. The block's sum over the tensor-parallel group adds both
// results.
#pragma once

#include "kernels/base/box.hpp"

namespace gyr {
// Tensor-parallel ranks that compute each mixer; empty: all ranks compute both.
struct Mixers {
  Span attention = {0, 0}, ssm = {0, 0};

  static Mixers all_ranks() { return {}; }
  // The first `attention` of `ranks` ranks compute the attention, the others the SSM.
  static Mixers separate(int attention, int ranks) { return {{0, attention}, {attention, ranks}}; }
  bool are_separate() const { return attention.size() > 0; }
  // The team of a rank, if are_separate().
  const Span& team_of(Index rank) const { return rank < attention.last ? attention : ssm; }
};

}  // namespace gyr
