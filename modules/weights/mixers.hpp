// SPDX-License-Identifier: BSD-3-Clause
// Mixer parallelism: the two mixers of a hybrid block run side by side on ranks of their own. Of n tensor ranks the first compute its attention and
// the others its SSM; both parts meet in the sum over the axis that the block takes anyway.
#pragma once

#include "kernels/base/box.hpp"

namespace gyr {

// Of the tensor axis, the ranks that work on each mixer; empty: all ranks work on both.
struct Mixers {
  Span attention = {0, 0}, ssm = {0, 0};

  static Mixers together() { return {}; }
  // Of so many ranks the first `attention`.
  static Mixers apart(int attention, int ranks) { return {{0, attention}, {attention, ranks}}; }
  bool are_apart() const { return attention.size() > 0; }
  // The one of the two teams that a rank is in, where there are any.
  const Span& team_of(Index rank) const { return rank < attention.last ? attention : ssm; }
};

}  // namespace gyr
