// SPDX-License-Identifier: BSD-3-Clause
// Documents packed one behind the other into the sequences of a pass. Nothing of a document reaches another: attention, convolution and
// scan look back no further than its first token, and rotary angles count from there.
#pragma once

#include <limits>
#include <span>

#include "kernels/tensor.hpp"

namespace gyr {

// positions(r): place of row r in its document, 0 at the document's first token and one more from row to row within it. A sequence may
// begin in the middle of a document. Empty: every sequence belongs to one document, which may have begun before it.
struct Documents {
  Tensor1<const std::int32_t> positions;  // (R), where kernels run
  std::span<const std::int32_t> host;     // the same, where loops over tiles are planned

  bool packed() const { return !host.empty(); }
  // Tokens before row r that belong to its document: in kernels, and in plans.
  KOKKOS_INLINE_FUNCTION Index reach(Index r) const { return positions.data() ? Index(positions(r)) : unlimited; }
  Index planned_reach(Index r) const { return packed() ? Index(host[r]) : unlimited; }

  Documents of_rows(Index first, Index count) const {
    return packed() ? Documents{rows(positions, first, count), host.subspan(std::size_t(first), std::size_t(count))} : Documents();
  }

  void check(Index rows) const {
    ensure(!packed() || (Index(host.size()) == rows && Index(positions.extent(0)) == rows), "positions of {} and {} rows for {}", host.size(),
           positions.extent(0), rows);
  }

  static constexpr Index unlimited = std::numeric_limits<Index>::max() / 2;
};

}  // namespace gyr
