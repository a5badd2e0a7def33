// SPDX-License-Identifier: BSD-3-Clause
// A communication in progress. With device_wait, the device waits for it in the order of its work, and the host can
// enqueue more work at once. host_wait is for results that the host reads itself.
#pragma once

#include <utility>

#include "kernels/device/device.hpp"
#include "kernels/device/progress_record.hpp"
#include "kernels/device/recorder.hpp"
#include "kernels/device/transport.hpp"

namespace gyr {

// The tensors must stay allocated until the communication is done.
class [[nodiscard]] Event {
 public:
  Event() = default;
  // `progress_record` records the wait under the name `call`; `recorded` is the entry of a recorder, if there is one.
  Event(Transport* transport, Transport::Ticket ticket, ProgressRecord* progress_record = nullptr, NamedCall call = {},
        Recorder::Handle recorded = {})
      : transport_(transport), ticket_(ticket), progress_record_(progress_record), call_(call), recorded_(recorded) {}
  // Event of a dry run, which counts the kernels that are launched until the wait.
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

  bool done();                // polls once, which lets the operation progress; true if the operation is done
  void device_wait(Device&);  // work that is enqueued on the device from now on starts once the operation is done
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
