// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/comm/event.hpp"

namespace gyr {

bool Event::done() {
  if (transport_ && transport_->done(ticket_)) {
    transport_ = nullptr;
    recorded_.done();
  }
  return transport_ == nullptr;
}

void Event::end_hidden_transfer() {
  if (OverlappedTransfers* const hidden = std::exchange(hidden_, nullptr)) hidden->awaited(number_);
}

void Event::device_wait(Device& dev) {
  if (!transport_ || !transport_->order(dev.queue, ticket_)) return host_wait();
  transport_ = nullptr;
  dev.record_after(progress_record_, call_);
  recorded_.done();
}

void Event::host_wait() {
  end_hidden_transfer();
  if (!transport_) return;
  const Recorder::Waiting recorded(recorded_);
  if (done()) return;
  const ProgressRecord::Waiting waiting(progress_record_, call_);
  while (!done()) transport_->rest();
}

}  // namespace gyr
