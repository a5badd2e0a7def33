// SPDX-License-Identifier: BSD-3-Clause
// Device memory allocated by NCCL. NVLink SHARP (NVLS, reductions in the NVLink switches) works only on such memory.
// Its granularity is mostly 2 MiB.
#pragma once

#include "kernels/base/scalar.hpp"

namespace gyr {

// Allocates device memory through NCCL; null if there is not enough.
void* allocate_nccl_memory(Index bytes);
void free_nccl_memory(void*);

}  // namespace gyr
