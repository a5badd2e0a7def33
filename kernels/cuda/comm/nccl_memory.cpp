// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/comm/nccl_memory.hpp"

#include <nccl.h>

#include "kernels/base/error.hpp"
#include "kernels/cuda/machine/runtime.hpp"

namespace gyr {

#if NCCL_VERSION_CODE >= 21900

// NCCL tells one error of CUDA from another in its log alone; one of memory is by far the likeliest.
void* allocate_nccl_memory(Index bytes) {
  void* memory = nullptr;
  if (ncclMemAlloc(&memory, std::size_t(bytes)) == ncclSuccess) return memory;
  cudaGetLastError();  // it is told, and no kernel's
  return nullptr;
}
void free_nccl_memory(void* memory) { ncclMemFree(memory); }

#else

void* allocate_nccl_memory(Index) { fail(Exit::usage, "GYR_CUDA_MEMORY=nccl wants NCCL 2.19 or newer"); }
void free_nccl_memory(void*) {}

#endif

}  // namespace gyr
