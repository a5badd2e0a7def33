// SPDX-License-Identifier: BSD-3-Clause
// Registers all GPU memory of this process with one NCCL communicator (ncclCommRegister, NCCL 2.19 or newer).
// Operations outside CUDA graphs then move data without copies through NCCL's own buffers (zero-copy). In graphs, NCCL
// registers memory by itself. NCCL requires that all ranks of an operation use registered memory or none does, which
// holds because each rank registers all its memory.
#pragma once

#include <nccl.h>

#include <map>

#include "kernels/cuda/machine/held_memory.hpp"
#include "kernels/cuda/machine/runtime.hpp"

namespace gyr {

class RegisteredMemory final : public cuda::MemoryWatcher {
 public:
  // True if this NCCL can register memory and the environment allows it (GYR_NCCL_REGISTER). All ranks must follow the
  // decision of one rank.
  static bool wanted();

  // `communicator`, and `stream` with its operations, must outlive this object.
  RegisteredMemory(ncclComm_t communicator, cudaStream_t stream, int rank, int size);
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  void taken(void* begin, Index bytes) override;
  void given_back(void* begin) override;
  // Drops all registrations without deregistering them, after the communicator was aborted.
  void forget() { handles_.clear(); }

 private:
  void deregister(void* handle);

  ncclComm_t communicator_;
  cudaStream_t stream_;
  int rank_, size_;
  std::map<void*, void*> handles_;  // registration handle by the begin of the memory
};

}  // namespace gyr
