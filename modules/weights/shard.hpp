// SPDX-License-Identifier: BSD-3-Clause
// Ranks that hold the same of a model may cut among themselves what they keep of it (ZeRO 1 to 3, Rajbhandari et al. 2020): numbers that lie
// flat, one behind the other, in as many equal parts as there are ranks.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/ops/any_tensor.hpp"
#include "modules/weights/placement.hpp"

namespace gyr {

// What is cut; each level with those before it. Masters and moments belong to the optimizer.
enum class Shard { none, optimizer, gradients, weights };
inline constexpr std::array<const char*, 4> shard_names{"none", "optimizer", "gradients", "weights"};
inline const char* name_of(Shard level) { return shard_names[std::size_t(level)]; }

// What there is of a weight: itself, and what training keeps beside it. (Activations are there for dumps.)
enum class Content { weight, first_moment, second_moment, master, gradient, activation };
// Whether ranks that hold the same weights keep parts of it.
inline bool is_zero_sharded(Content content, Shard level) { return content == Content::weight ? level == Shard::weights : level != Shard::none; }

struct ShardedOver {
  Shard level = Shard::none;
  Coordinate ranks = {};  // that cut it among themselves, and this one of them
};

// Where a weight's share lies in a run that is cut.
struct FlatCut {
  Index offset = 0, extent = 0;  // of the share's first element in the run; of the run
  int parts = 1;

  Index each() const { return extent / parts; }
  // Elements of a row-major share of `size` that lie in a part.
  Span of(Index size, int part) const {
    const auto inside = [&](Index at) { return std::clamp<Index>(at - offset, 0, size); };
    return {inside(part * each()), inside((part + 1) * each())};
  }
};

// What a rank keeps of a share: its elements `of`, none perhaps. Without numbers: absent.
struct Piece {
  AnyTensor numbers;
  Span of = {0, 0};

  explicit operator bool() const { return bool(numbers); }
};

}  // namespace gyr
