// SPDX-License-Identifier: BSD-3-Clause
// Two sides of a copy at work at the same time: blocks of memory go round between the one that fills and the one that drains them.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "kernels/base/scalar.hpp"

namespace gyr {

// Calls fill(i, block) and then drain(i, block) for every i < count, each in the order of i, a block being `block_bytes` of memory, of which
// there are three. `aside` runs on a thread of its own, the other side on the caller's. Whatever either side throws ends both, and is
// thrown here when neither runs any more.
enum class Aside { filling, draining };
using BlockUse = std::function<void(std::size_t i, std::span<std::byte> block)>;
void convey(std::size_t count, Index block_bytes, Aside aside, const BlockUse& fill, const BlockUse& drain);

}  // namespace gyr
