// SPDX-License-Identifier: BSD-3-Clause
// Documents packed into the sequences of a batch. Tokens of different documents do not interact: attention, convolution
// and scan look back no further than the first token of the document, rotary positions count from there, and
// bidirectional attention looks ahead no further than its last token.
#pragma once

#include <limits>
#include <span>

#include "kernels/base/tensor.hpp"

namespace gyr {

// positions(r): position of row r in its document, 0 at the first token of the document. A sequence may begin in the middle of a document. Empty:
// every sequence belongs to one document, which may have begun before it. ahead(r): number of tokens after row r in its document, on any rank; only
// for bidirectional attention. Padding after a document is a document of its own.
struct Documents {
  Tensor1<const std::int32_t> positions;  // position of each row, shape (rows), in memory that kernels read; empty if documents are not packed
  std::span<const std::int32_t> host;     // copy of the positions for the host, which plans loops over tiles
  Tensor1<const std::int32_t> ahead = {};
  std::span<const std::int32_t> host_ahead = {};

  bool packed() const { return !host.empty(); }
  // Number of tokens before row r in its document, or `unlimited` if documents are not packed: for kernels, and for
  // plans on the host.
  KOKKOS_INLINE_FUNCTION Index reach(Index r) const { return positions.data() ? Index(positions(r)) : unlimited; }
  Index planned_reach(Index r) const { return packed() ? Index(host[r]) : unlimited; }
  // Number of tokens after row r in its document, or `unlimited` if `ahead` is empty: for kernels, and for plans on the
  // host.
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
    ensure(!packed() || (Index(host.size()) == rows && Index(positions.extent(0)) == rows), "packed documents: {} and {} positions for {} rows",
           host.size(), positions.extent(0), rows);
    ensure(!both_ways() || (Index(host_ahead.size()) == rows && Index(ahead.extent(0)) == rows),
           "packed documents: tokens ahead are given for {} and {} rows, expected {}", host_ahead.size(), ahead.extent(0), rows);
  }

  static constexpr Index unlimited = std::numeric_limits<Index>::max() / 2;
};

}  // namespace gyr
