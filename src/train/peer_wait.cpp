// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/peer_wait.hpp"

#include <time.h>

#include <chrono>

namespace gyr {

void wait_for(Event& event, PeerProgress& peers, ProgressRecord& progress_record) {
  using Clock = std::chrono::steady_clock;
  constexpr auto between_looks = std::chrono::milliseconds(500);
  const ProgressRecord::Waiting waiting(&progress_record, {.operation = "receive", .bytes = sizeof(double)});
  for (auto looked = Clock::now(); !event.done();) {
    if (Clock::now() - looked > between_looks) {
      if (peers.moved()) progress_record.advance();
      looked = Clock::now();
    }
    const timespec pause{0, 200'000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace gyr
