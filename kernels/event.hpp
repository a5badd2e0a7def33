// SPDX-License-Identifier: BSD-3-Clause
// A communication under way. The device waits for it, in the order of its work, wherever the host decides nothing by the result: a device
// with a queue of its own is then given more work at once. The host waits where it reads the numbers itself.
#pragma once

#include <utility>

#include "kernels/beacon.hpp"
#include "kernels/device.hpp"
#include "kernels/recorder.hpp"
#include "kernels/transport.hpp"

namespace gyr {

// Its tensors must stay until it is done.
class [[nodiscard]] Event {
 public:
  Event() = default;
  // A `beacon` is told of the wait for it as of the call, and so is who records it.
  Event(Transport* transport, Transport::Ticket ticket, Beacon* beacon = nullptr, NamedCall call = {}, Recorder::Handle recorded = {})
      : transport_(transport), ticket_(ticket), beacon_(beacon), call_(call), recorded_(recorded) {}
  // Of a dry run, which counts what is computed until the wait.
  Event(HiddenTransfers& hidden, int number) : hidden_(&hidden), number_(number) {}
  Event(Event&& other) noexcept { *this = std::move(other); }
  Event& operator=(Event&& other) noexcept {
    std::swap(transport_, other.transport_);
    std::swap(ticket_, other.ticket_);
    std::swap(beacon_, other.beacon_);
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
  void counted_as_awaited();

  Transport* transport_ = nullptr;
  Transport::Ticket ticket_ = 0;
  Beacon* beacon_ = nullptr;
  NamedCall call_;
  Recorder::Handle recorded_;
  HiddenTransfers* hidden_ = nullptr;
  int number_ = 0;
};

}  // namespace gyr
