// SPDX-License-Identifier: BSD-3-Clause
// ZeRO sharding (ZeRO-1 to ZeRO-3, Rajbhandari et al. 2020): ranks that hold the same weights each store only a part of
// the optimizer state, the gradients or the weights. The data is stored flat, one weight after the other, and split
// into one equal part per rank.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/ops/any_tensor.hpp"
#include "modules/weights/content.hpp"
#include "modules/weights/placement.hpp"

namespace gyr {

// Sharded data (ZeRO-1, 2, 3); each level includes the ones before it. The optimizer state is the fp32 master weights
// and the states of update rules.
enum class Shard { none, optimizer, gradients, weights };
inline constexpr std::array<const char*, 4> shard_names{"none", "optimizer", "gradients", "weights"};
inline const char* name_of(Shard level) { return shard_names[std::size_t(level)]; }

// True if ranks that hold the same weights each store a part of this data.
inline bool is_zero_sharded(Content content, Shard level) { return content == Content::weight ? level == Shard::weights : level != Shard::none; }

struct ShardedOver {
  Shard level = Shard::none;
  Coordinate ranks = {};  // ranks that shard the data (ZeRO), and the index of this rank
};

// Position of a weight's tensor-parallel shard in a flat run of weights, which ZeRO splits into `parts` equal parts.
struct FlatShard {
  Index offset = 0, extent = 0;  // elements: offset of the shard in the run; size of the run
  int parts = 1;

  Index each() const { return extent / parts; }
  // Elements of a row-major tensor-parallel shard of `size` elements that are in ZeRO part `part`.
  Span of(Index size, int part) const {
    const auto inside = [&](Index at) { return std::clamp<Index>(at - offset, 0, size); };
    return {inside(part * each()), inside((part + 1) * each())};
  }
};

// A rank's ZeRO part of a tensor-parallel shard: `values` holds the elements `of` of the row-major shard, possibly
// none. False if there is no data.
struct Piece {
  AnyTensor values;
  Span of = {0, 0};

  explicit operator bool() const { return bool(values); }
};

}  // namespace gyr
