// SPDX-License-Identifier: BSD-3-Clause
// Offload of saved activations to host memory. The activations of a layer are copied out while the next layer computes,
// and their device memory is free once that layer has ended. They are copied back while the layer after theirs runs its
// backward. So the device never holds the activations of more than two layers (Zhao et al., "MEMO: Fine-grained Tensor
// Management For Ultra-long Context LLM Training", 2024). Host memory is a stack: the last layer that was copied out is
// the first to be copied back.
#pragma once

#include <map>
#include <vector>

#include "kernels/device/host_copies.hpp"
#include "modules/pass/offload_batch.hpp"

namespace gyr {

class OffloadQueue {
 public:
  // Queue of a dry run, which counts host bytes but copies nothing.
  OffloadQueue() = default;
  OffloadQueue(HostCopies& queues, char* memory, Index bytes) : queues_(&queues), memory_(memory), capacity_(bytes) {}

  // Starts the copy of a layer's saved activations to the host.
  void out(Device&, Index layer, OffloadBatch);
  // Makes the device wait for that copy, and frees the device memory of the activations.
  void leave(Index layer);
  // Allocates device memory, and starts the copy of the activations back to the device.
  void back(Device&, Index layer);
  // Makes the device wait for the copy back, and returns the activations.
  OffloadBatch arrive(Index layer);
  // Forgets all layers at the end of a micro-batch.
  void clear();

  Index high_water() const { return high_water_; }  // peak bytes of host memory

 private:
  struct Load {
    OffloadBatch offload_batch;
    Index begin = 0;
    HostCopies::Ticket ticket = 0;
  };
  std::vector<HostCopy> copies(const Load&, bool out) const;
  static Index bytes_of(const OffloadBatch&);  // bytes of host memory that a layer's activations take, with alignment
  static double carried(const OffloadBatch&);  // bytes of a layer's activations that are copied in one direction

  HostCopies* queues_ = nullptr;
  char* memory_ = nullptr;
  Index capacity_ = 0, used_ = 0, high_water_ = 0;
  std::map<Index, Load> loads_;
};

}  // namespace gyr
