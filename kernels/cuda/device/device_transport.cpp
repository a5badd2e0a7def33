// SPDX-License-Identifier: BSD-3-Clause
// Selection of the transport between GPUs: NCCL, or staging through host memory.
#include <algorithm>
#include <vector>

#include "kernels/cuda/comm/nccl_transport.hpp"
#include "kernels/cuda/comm/staged_transport.hpp"
#include "kernels/cuda/machine/runtime.hpp"

namespace gyr {

namespace {

bool each_rank_has_own_gpu(Transport& hosts) {
  const cuda::DeviceIdentity mine = cuda::device_identity();
  std::vector<cuda::DeviceIdentity> all(static_cast<std::size_t>(hosts.size()));
  const Transport::Ticket ticket = hosts.all_gather(&mine, all.data(), Index(sizeof mine), DType::u8);
  while (!hosts.done(ticket)) hosts.rest();
  std::sort(all.begin(), all.end());
  return std::adjacent_find(all.begin(), all.end()) == all.end();
}

}  // namespace

// NCCL refuses ranks that share a GPU, so they use the staged transport.
std::unique_ptr<Transport> backend::device_transport(std::unique_ptr<Transport> hosts) {
  if (hosts->size() > 1 && each_rank_has_own_gpu(*hosts)) return nccl_transport(std::move(hosts));
  return cuda::staged_transport(std::move(hosts));
}

}  // namespace gyr
