// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/nccl/memory.hpp"

#include <nccl.h>

#include "kernels/cuda/runtime.hpp"
#include "kernels/error.hpp"

namespace gyr {

#if NCCL_VERSION_CODE >= 21900

// NCCL tells one error of CUDA from another in its log alone; one of memory is by far the likeliest.
void* take_nccl_memory(Index bytes) {
  void* memory = nullptr;
  if (ncclMemAlloc(&memory, std::size_t(bytes)) == ncclSuccess) return memory;
  cudaGetLastError();  // it is told, and no kernel's
  return nullptr;
}
void return_nccl_memory(void* memory) { ncclMemFree(memory); }

#else

void* take_nccl_memory(Index) { fail(Exit::usage, "GYR_CUDA_MEMORY=nccl wants NCCL 2.19 or newer"); }
void return_nccl_memory(void*) {}

#endif

}  // namespace gyr
