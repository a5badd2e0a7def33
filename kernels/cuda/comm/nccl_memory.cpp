// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/comm/nccl_memory.hpp"

#include <nccl.h>

#include "kernels/base/error.hpp"
#include "kernels/cuda/machine/runtime.hpp"

namespace gyr {

#if NCCL_VERSION_CODE >= 21900

// NCCL distinguishes CUDA errors only in its log. Lack of memory is by far the most likely error.
void* allocate_nccl_memory(Index bytes) {
  void* memory = nullptr;
  if (ncclMemAlloc(&memory, std::size_t(bytes)) == ncclSuccess) return memory;
  cudaGetLastError();  // clears the error, which would otherwise be reported for a later kernel
  return nullptr;
}
void free_nccl_memory(void* memory) { ncclMemFree(memory); }

#else

void* allocate_nccl_memory(Index) { fail(Exit::usage, "GYR_CUDA_MEMORY=nccl needs a build with NCCL 2.19 or newer"); }
void free_nccl_memory(void*) {}

#endif

}  // namespace gyr
