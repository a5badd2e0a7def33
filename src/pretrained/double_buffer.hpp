// SPDX-License-Identifier: BSD-3-Clause
// Pipelined copy: a producer fills blocks of memory while a consumer drains others.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "kernels/base/scalar.hpp"

namespace gyr {

// Calls fill(i, block) and then drain(i, block) for every i < count, each side in the order of i. A block is one of
// three buffers of `block_bytes` bytes. `aside` selects the side that runs on a new thread; the other side runs on the
// calling thread. An exception of either side stops both and is rethrown here after both have stopped.
enum class Aside { filling, draining };
using BlockUse = std::function<void(std::size_t i, std::span<std::byte> block)>;
void convey(std::size_t count, Index block_bytes, Aside aside, const BlockUse& fill, const BlockUse& drain);

}  // namespace gyr
