// SPDX-License-Identifier: BSD-3-Clause
// All memory that this process holds of its GPU, registered with one communicator of NCCL (ncclCommRegister, from 2.19 on): what is told outside
// graphs may then be moved from where it lies to where it belongs, where else NCCL copies it to buffers of its own and back. In graphs NCCL registers
// what it meets by itself. NCCL wants that either all ranks of an operation give it registered memory or none, which holds where each registers all.
#pragma once

#include <nccl.h>

#include <map>

#include "kernels/cuda/machine/held_memory.hpp"
#include "kernels/cuda/machine/runtime.hpp"

namespace gyr {

class RegisteredMemory final : public cuda::MemoryWatcher {
 public:
  // Whether this NCCL registers memory, and the environment lets it (GYR_NCCL_REGISTER). All ranks must do as one of them says.
  static bool wanted();

  // `communicator` and the stream of what is told to it stay as long as this.
  RegisteredMemory(ncclComm_t communicator, cudaStream_t stream, int rank, int size);
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  void taken(void* begin, Index bytes) override;
  void given_back(void* begin) override;
  // The communicator was given up, and knows of no memory any more.
  void forget() { handles_.clear(); }

 private:
  void deregister(void* handle);

  ncclComm_t communicator_;
  cudaStream_t stream_;
  int rank_, size_;
  std::map<void*, void*> handles_;  // by the begin of what is registered
};

}  // namespace gyr
