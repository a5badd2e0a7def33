// SPDX-License-Identifier: BSD-3-Clause
// Cache of RoPE angle tables. Each is computed once for all layers, micro-batches and steps with the same RoPE
// parameters.
#pragma once

#include <map>
#include <tuple>

#include "kernels/ops/any_tensor.hpp"
#include "kernels/ops/rope.hpp"

namespace gyr {

// RoPE angles of the rows of a pass: row r has those of row index(r) of the table.
template <class A>
struct RowRotation {
  Rotation<A> table;
  Tensor1<const std::int32_t> index;
};

class RotaryTables {
 public:
  // Tables cover positions 0 to `positions` - 1. `memory` must stay allocated.
  RotaryTables(Arena& memory, Index positions) : memory_(&memory), positions_(positions) {}

  Index positions() const { return positions_; }
  template <class A>
  Rotation<A> get(Device& dev, double rope_theta, const RopeScaling& scaling, Index rotary_dim) {
    const auto [entry, fresh] = made_.try_emplace({rope_theta, scaling, rotary_dim, dtype_of<A>()});
    if (fresh) entry->second = {take(*memory_, dtype_of<A>(), positions_, rotary_dim / 2), take(*memory_, dtype_of<A>(), positions_, rotary_dim / 2)};
    const Rotation<A> table{entry->second.first.template as<A>(), entry->second.second.template as<A>()};
    if (fresh) rope_table<A>(dev, rope_theta, scaling, table);
    return table;
  }

 private:
  Arena* memory_;
  Index positions_;
  std::map<std::tuple<double, RopeScaling, Index, DType>, std::pair<AnyTensor2, AnyTensor2>> made_;
};

}  // namespace gyr
