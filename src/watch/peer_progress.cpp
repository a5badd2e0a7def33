// SPDX-License-Identifier: BSD-3-Clause
#include "src/watch/peer_progress.hpp"

#include <algorithm>
#include <utility>

namespace gyr {

bool PeerProgress::moved() {
  std::uint64_t sum = 0;
  bool any = false;
  for (const Heartbeat& h : read_heartbeats(heartbeat_path(output_)))
    if (std::find(ranks_.begin(), ranks_.end(), h.rank) != ranks_.end()) sum += h.progress, any = true;
  return !any || std::exchange(last_, sum) != sum;
}

}  // namespace gyr
