// SPDX-License-Identifier: BSD-3-Clause
// Where what layers of a micro-batch have kept lies meanwhile: on the host. A layer's cargo goes out while the next one computes and is gone when
// that has ended; it comes back while the one behind it goes back. So the device never holds more than two layers' (Zhao et al., "MEMO: Fine-grained
// Tensor Management For Ultra-long Context LLM Training", 2024). What went last comes first: the host's memory is a stack.
#pragma once

#include <map>
#include <vector>

#include "kernels/device/host_copies.hpp"
#include "modules/pass/offload_batch.hpp"

namespace gyr {

class OffloadQueue {
 public:
  // A dry run counts.
  OffloadQueue() = default;
  OffloadQueue(HostCopies& queues, char* memory, Index bytes) : queues_(&queues), memory_(memory), capacity_(bytes) {}

  // Begins to copy out what a layer has kept.
  void out(Device&, Index layer, OffloadBatch);
  // It is there: the device's memory serves others from now on.
  void leave(Index layer);
  // Takes memory on the device, and begins to copy back.
  void back(Device&, Index layer);
  // It is back: the cargo, which is nobody's any more.
  OffloadBatch arrive(Index layer);
  // The micro-batch has gone.
  void clear();

  Index high_water() const { return high_water_; }  // bytes

 private:
  struct Load {
    OffloadBatch offload_batch;
    Index begin = 0;
    HostCopies::Ticket ticket = 0;
  };
  std::vector<HostCopy> copies(const Load&, bool out) const;
  static Index bytes_of(const OffloadBatch&);  // on the host
  static double carried(const OffloadBatch&);  // that are copied

  HostCopies* queues_ = nullptr;
  char* memory_ = nullptr;
  Index capacity_ = 0, used_ = 0, high_water_ = 0;
  std::map<Index, Load> loads_;
};

}  // namespace gyr
