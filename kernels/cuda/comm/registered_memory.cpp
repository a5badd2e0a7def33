// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/comm/registered_memory.hpp"

#include "kernels/cuda/comm/nccl_check.hpp"

namespace gyr {

namespace {

constexpr bool registers = NCCL_VERSION_CODE >= 21900;

#if NCCL_VERSION_CODE < 21900
ncclResult_t ncclCommRegister(ncclComm_t, void*, size_t, void**) { return ncclInvalidUsage; }
ncclResult_t ncclCommDeregister(ncclComm_t, void*) { return ncclInvalidUsage; }
#endif

}  // namespace

bool RegisteredMemory::wanted() { return cuda::environment_allows("GYR_NCCL_REGISTER") && registers; }

RegisteredMemory::RegisteredMemory(ncclComm_t communicator, cudaStream_t stream, int rank, int size)
    : communicator_(communicator), stream_(stream), rank_(rank), size_(size) {
  cuda::DeviceMemoryRegistry::of_process().watch(*this);
}

RegisteredMemory::~RegisteredMemory() {
  cuda::DeviceMemoryRegistry::of_process().leave(*this);
  for (const auto& [begin, handle] : handles_) deregister(handle);
}

void RegisteredMemory::taken(void* begin, Index bytes) {
  void* handle = nullptr;
  check_nccl(ncclCommRegister(communicator_, begin, std::size_t(bytes), &handle), "registration of memory (GYR_NCCL_REGISTER=off disables it)", rank_,
             size_);
  handles_[begin] = handle;
}

void RegisteredMemory::given_back(void* begin) {
  const auto found = handles_.find(begin);
  if (found == handles_.end()) return;
  deregister(found->second);
  handles_.erase(found);
}

// `handle` is null if NCCL registers nothing (NCCL_LOCAL_REGISTER=0). Errors are ignored, because destructors call
// this.
void RegisteredMemory::deregister(void* handle) {
  cudaStreamSynchronize(stream_);
  if (handle) ncclCommDeregister(communicator_, handle);
}

}  // namespace gyr
