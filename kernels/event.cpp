// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/event.hpp"

namespace gyr {

bool Event::done() {
  if (transport_ && transport_->done(ticket_)) transport_ = nullptr;
  return transport_ == nullptr;
}

// A device that works on the host's threads has no queue to wait in.
void Event::device_wait(Device&) { host_wait(); }

void Event::host_wait() {
  if (done()) return;
  const Beacon::Waiting waiting(beacon_, call_);
  while (!done()) transport_->rest();
}

}  // namespace gyr
