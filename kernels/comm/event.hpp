// SPDX-License-Identifier: BSD-3-Clause
// A communication under way. The device waits for it, in the order of its work, wherever the host decides nothing by the result: a device
// with a queue of its own is then given more work at once. The host waits where it reads the numbers itself.
#pragma once

#include <utility>

#include "kernels/device/device.hpp"
#include "kernels/device/progress_record.hpp"
#include "kernels/device/recorder.hpp"
#include "kernels/device/transport.hpp"

namespace gyr {

// Its tensors must stay until it is done.
class [[nodiscard]] Event {
 public:
  Event() = default;
  // A `beacon` is told of the wait for it as of the call, and so is who records it.
  Event(Transport* transport, Transport::Ticket ticket, ProgressRecord* progress_record = nullptr, NamedCall call = {},
        Recorder::Handle recorded = {})
      : transport_(transport), ticket_(ticket), progress_record_(progress_record), call_(call), recorded_(recorded) {}
  // Of a dry run, which counts what is computed until the wait.
  Event(OverlappedTransfers& hidden, int number) : hidden_(&hidden), number_(number) {}
  Event(Event&& other) noexcept { *this = std::move(other); }
  Event& operator=(Event&& other) noexcept {
    std::swap(transport_, other.transport_);
    std::swap(ticket_, other.ticket_);
    std::swap(progress_record_, other.progress_record_);
    std::swap(call_, other.call_);
    std::swap(recorded_, other.recorded_);
    std::swap(hidden_, other.hidden_);
    std::swap(number_, other.number_);
    return *this;
  }

  bool done();                // polls, which also lets the operation advance
  void device_wait(Device&);  // what the device is given from now on begins when the operation is done
  void host_wait();           // polls until done; never blocks inside MPI

 private:
  void end_hidden_transfer();

  Transport* transport_ = nullptr;
  Transport::Ticket ticket_ = 0;
  ProgressRecord* progress_record_ = nullptr;
  NamedCall call_;
  Recorder::Handle recorded_;
  OverlappedTransfers* hidden_ = nullptr;
  int number_ = 0;
};

}  // namespace gyr
