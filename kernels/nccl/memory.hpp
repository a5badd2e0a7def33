// SPDX-License-Identifier: BSD-3-Clause
// Memory of the device as NCCL takes it, which alone it lets NVLink's switches reduce (NVLS). In pieces of 2 MiB, mostly.
#pragma once

#include "kernels/scalar.hpp"

namespace gyr {

// Null where there is not so much.
void* take_nccl_memory(Index bytes);
void return_nccl_memory(void*);

}  // namespace gyr
