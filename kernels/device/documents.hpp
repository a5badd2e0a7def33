// SPDX-License-Identifier: BSD-3-Clause
// Documents packed one behind the other into the sequences of a pass. Nothing of a document reaches another: attention, convolution and
// scan look back no further than its first token, rotary angles count from there, and attention both ways looks ahead no further than its last.
#pragma once

#include <limits>
#include <span>

#include "kernels/base/tensor.hpp"

namespace gyr {

// positions(r): place of row r in its document, 0 at the document's first token and one more from row to row within it. A sequence may
// begin in the middle of a document. Empty: every sequence belongs to one document, which may have begun before it.
// ahead(r): tokens of its document behind row r, whoever has them; of attention both ways alone. Padding behind a text is a document of its own.
struct Documents {
  Tensor1<const std::int32_t> positions;  // (R), where kernels run
  std::span<const std::int32_t> host;     // the same, where loops over tiles are planned
  Tensor1<const std::int32_t> ahead = {};
  std::span<const std::int32_t> host_ahead = {};

  bool packed() const { return !host.empty(); }
  // Tokens before row r that belong to its document: in kernels, and in plans.
  KOKKOS_INLINE_FUNCTION Index reach(Index r) const { return positions.data() ? Index(positions(r)) : unlimited; }
  Index planned_reach(Index r) const { return packed() ? Index(host[r]) : unlimited; }
  // The same of tokens behind it.
  KOKKOS_INLINE_FUNCTION Index reach_ahead(Index r) const { return ahead.data() ? Index(ahead(r)) : unlimited; }
  Index planned_reach_ahead(Index r) const { return both_ways() ? Index(host_ahead[r]) : unlimited; }
  bool both_ways() const { return !host_ahead.empty(); }

  Documents of_rows(Index first, Index count) const {
    if (!packed()) return {};
    Documents part{rows(positions, first, count), host.subspan(std::size_t(first), std::size_t(count))};
    if (both_ways()) part.ahead = rows(ahead, first, count), part.host_ahead = host_ahead.subspan(std::size_t(first), std::size_t(count));
    return part;
  }

  void check(Index rows) const {
    ensure(!packed() || (Index(host.size()) == rows && Index(positions.extent(0)) == rows), "positions of {} and {} rows for {}", host.size(),
           positions.extent(0), rows);
    ensure(!both_ways() || (Index(host_ahead.size()) == rows && Index(ahead.extent(0)) == rows), "tokens ahead of {} and {} rows for {}",
           host_ahead.size(), ahead.extent(0), rows);
  }

  static constexpr Index unlimited = std::numeric_limits<Index>::max() / 2;
};

}  // namespace gyr
