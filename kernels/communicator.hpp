// SPDX-License-Identifier: BSD-3-Clause
// The ranks along one axis of a layout. Operations take tensors, are split in start and wait, and are counted:
// calls and payload bytes per operation, which tests compare with closed forms. On one rank nothing moves and nothing is counted.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "kernels/beacon.hpp"
#include "kernels/device.hpp"
#include "kernels/transport.hpp"

namespace gyr {

enum class Operation { all_reduce, reduce_scatter, all_gather, broadcast, send, receive };
inline constexpr int operations = 6;
std::string_view name_of(Operation);

struct Traffic {
  Index calls = 0;
  Index bytes = 0;  // handed to the transport by this rank
};

// An operation under way. Its tensors must stay until wait has returned.
class [[nodiscard]] Request {
 public:
  Request() = default;
  // A `beacon` is told of the wait for it as of the call.
  Request(Transport* transport, Transport::Ticket ticket, Beacon* beacon = nullptr, Call call = {})
      : transport_(transport), ticket_(ticket), beacon_(beacon), call_(call) {}
  Request(Request&& other) noexcept { *this = std::move(other); }
  Request& operator=(Request&& other) noexcept {
    std::swap(transport_, other.transport_);
    std::swap(ticket_, other.ticket_);
    std::swap(beacon_, other.beacon_);
    std::swap(call_, other.call_);
    return *this;
  }

  bool done();  // polls, which also lets the operation advance
  void wait();  // polls until done; never blocks inside MPI

 private:
  Transport* transport_ = nullptr;
  Transport::Ticket ticket_ = 0;
  Beacon* beacon_ = nullptr;
  Call call_;
};

class Communicator {
 public:
  // `beacon`: told what this rank waits for; may be null. It must outlive the communicator's requests.
  Communicator(std::string name, std::unique_ptr<Transport> transport, Beacon* beacon = nullptr);

  const std::string& name() const { return name_; }
  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }

  // x = sum or max of every rank's x, in place.
  template <class T>
  Request start_all_reduce(Device& dev, Tensor1<T> x, Reduction how = Reduction::sum) {
    return start(dev, Operation::all_reduce, x.span() * sizeof(T), [&] { return transport_->all_reduce(x.data(), x.span(), dtype_of<T>(), how); });
  }
  // mine (n) = this rank's part of the sum of every rank's data (size * n)
  template <class T>
  Request start_reduce_scatter(Device& dev, Tensor1<const T> data, Tensor1<T> mine) {
    return start(dev, Operation::reduce_scatter, data.span() * sizeof(T),
                 [&] { return transport_->reduce_scatter(data.data(), mine.data(), mine.span(), dtype_of<T>()); });
  }
  // all (size * n) = every rank's mine (n) in rank order
  template <class T>
  Request start_all_gather(Device& dev, Tensor1<const T> mine, Tensor1<T> all) {
    return start(dev, Operation::all_gather, mine.span() * sizeof(T),
                 [&] { return transport_->all_gather(mine.data(), all.data(), mine.span(), dtype_of<T>()); });
  }
  template <class T>
  Request start_broadcast(Device& dev, Tensor1<T> x, int root) {
    return start(dev, Operation::broadcast, x.span() * sizeof(T), [&] { return transport_->broadcast(x.data(), x.span(), dtype_of<T>(), root); });
  }
  template <class T>
  Request start_send(Device& dev, Tensor1<const T> x, int to, int tag = 0) {
    return start(dev, Operation::send, x.span() * sizeof(T), [&] { return transport_->send(x.data(), x.span(), dtype_of<T>(), to, tag); });
  }
  template <class T>
  Request start_receive(Device& dev, Tensor1<T> x, int from, int tag = 0) {
    return start(dev, Operation::receive, x.span() * sizeof(T), [&] { return transport_->receive(x.data(), x.span(), dtype_of<T>(), from, tag); });
  }

  template <class T>
  void all_reduce(Device& dev, Tensor1<T> x, Reduction how = Reduction::sum) {
    start_all_reduce(dev, x, how).wait();
  }

  // Numbers on the host, for bookkeeping: every rank's values, in rank order. Not counted.
  std::vector<double> gather(std::span<const double> mine);
  // Their sum or maximum in rank order: the same bits on every rank.
  double sum(double mine);
  double max(double mine);
  void barrier() { sum(0); }

  const Traffic& traffic(Operation op) const { return traffic_[int(op)]; }
  const std::array<Traffic, operations>& traffic() const { return traffic_; }
  void add(const std::array<Traffic, operations>& more);  // counts it as if it had moved once more
  void clear_traffic() { traffic_ = {}; }
  Transport& transport() { return *transport_; }

 private:
  template <class Start>
  Request start(Device& dev, Operation op, Index bytes, Start&& start) {
    if (size() == 1) return {};
    traffic_[int(op)].calls += dev.times();
    traffic_[int(op)].bytes += dev.times() * bytes;
    if (dev.dry_run()) return {};
    dev.exec.fence();
    return under_way(op, bytes, start());
  }
  Request under_way(Operation, Index bytes, Transport::Ticket);

  std::string name_;
  std::unique_ptr<Transport> transport_;
  Beacon* beacon_;
  int channel_ = -1;
  std::uint64_t started_ = 0;  // operations so far
  std::array<Traffic, operations> traffic_{};
};

}  // namespace gyr
