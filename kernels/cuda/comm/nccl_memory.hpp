// SPDX-License-Identifier: BSD-3-Clause
// Memory of the device as NCCL takes it, which alone it lets NVLink's switches reduce (NVLS). In pieces of 2 MiB, mostly.
#pragma once

#include "kernels/base/scalar.hpp"

namespace gyr {

// Null where there is not so much.
void* allocate_nccl_memory(Index bytes);
void free_nccl_memory(void*);

}  // namespace gyr
