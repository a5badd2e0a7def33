// SPDX-License-Identifier: BSD-3-Clause
// The ranks along one axis of a layout. Operations take tensors, are started and waited for later (event.hpp), and are counted:
// calls and payload bytes per operation, which tests compare with closed forms. On one rank nothing moves and nothing is counted.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/comm/event.hpp"
#include "kernels/device/traffic.hpp"
#include "kernels/ops/any_tensor.hpp"

namespace gyr {

class Communicator {
 public:
  // `beacon`: told what this rank waits for; may be null. It must outlive the communicator's events.
  Communicator(std::string name, std::unique_ptr<Transport> transport, ProgressRecord* progress_record = nullptr);

  const std::string& name() const { return name_; }
  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  std::string transport_name() const { return transport_->name(); }

  // x = sum or max of every rank's x, in place.
  template <class T>
  Event start_all_reduce(Device& dev, Tensor1<T> x, Reduction how = Reduction::sum) {
    return start(dev, Operation::all_reduce, x.span() * sizeof(T), [&] { return transport_->all_reduce(x.data(), x.span(), dtype_of<T>(), how); });
  }
  // mine (n) = this rank's part of the sum of every rank's data (size * n). `mine` lies apart, or in its place in `data`, whose other parts mean
  // nothing then.
  template <class T>
  Event start_reduce_scatter(Device& dev, Tensor1<const T> data, Tensor1<T> mine) {
    return start(dev, Operation::reduce_scatter, data.span() * sizeof(T),
                 [&] { return transport_->reduce_scatter(data.data(), mine.data(), mine.span(), dtype_of<T>()); }, {data.data(), mine.data()});
  }
  // all (size * n) = every rank's mine (n) in rank order, which lies apart or in its place in `all`.
  template <class T>
  Event start_all_gather(Device& dev, Tensor1<const T> mine, Tensor1<T> all) {
    return start(dev, Operation::all_gather, mine.span() * sizeof(T),
                 [&] { return transport_->all_gather(mine.data(), all.data(), mine.span(), dtype_of<T>()); }, {mine.data(), all.data()});
  }
  template <class T>
  Event start_broadcast(Device& dev, Tensor1<T> x, int root) {
    return start(dev, Operation::broadcast, x.span() * sizeof(T), [&] { return transport_->broadcast(x.data(), x.span(), dtype_of<T>(), root); });
  }
  template <class T>
  Event start_send(Device& dev, Tensor1<const T> x, int to, int tag = 0) {
    return start(dev, Operation::send, x.span() * sizeof(T), [&] { return transport_->send(x.data(), x.span(), dtype_of<T>(), to, tag); });
  }
  template <class T>
  Event start_receive(Device& dev, Tensor1<T> x, int from, int tag = 0) {
    return start(dev, Operation::receive, x.span() * sizeof(T), [&] { return transport_->receive(x.data(), x.span(), dtype_of<T>(), from, tag); });
  }
  // The r-th of `size` equal parts of every rank's data goes to rank r, which has those of all ranks then in rank order.
  template <class T>
  Event start_all_to_all(Device& dev, Tensor1<const T> data, Tensor1<T> received) {
    return start(dev, Operation::all_to_all, data.span() * sizeof(T),
                 [&] { return transport_->all_to_all(data.data(), received.data(), data.span() / size(), dtype_of<T>()); },
                 {data.data(), received.data()});
  }
  // The same of parts of any length: counts[r] elements go to rank r, received_counts[r] come from there.
  template <class T>
  Event start_all_to_all(Device& dev, Tensor1<const T> data, std::span<const Index> counts, Tensor1<T> received,
                         std::span<const Index> received_counts) {
    return start(dev, Operation::all_to_all, data.span() * sizeof(T),
                 [&] { return transport_->all_to_all(data.data(), counts, received.data(), received_counts, dtype_of<T>()); },
                 {data.data(), received.data()});
  }
  // Sends to one rank and receives from another, as the ranks of a ring do all at once.
  template <class T>
  Event start_shift(Device& dev, Tensor1<const T> x, int to, Tensor1<T> received, int from, int tag = 0) {
    return start(dev, Operation::shift, x.span() * sizeof(T),
                 [&] { return transport_->shift(x.data(), x.span(), to, received.data(), received.span(), from, dtype_of<T>(), tag); },
                 {x.data(), received.data()});
  }

  // The same of numbers of any scalar.
  Event start_all_reduce(Device& dev, const AnyTensor& x) {
    return with_type(x, [&](const auto& typed) { return start_all_reduce(dev, typed); });
  }
  Event start_reduce_scatter(Device& dev, const AnyTensor& data, const AnyTensor& mine) {
    return with_type(mine, [&]<class V>(const V& typed) {
      using S = typename V::value_type;
      return start_reduce_scatter<S>(dev, data.as<const S>(), typed);
    });
  }
  Event start_all_gather(Device& dev, const AnyTensor& mine, const AnyTensor& all) {
    return with_type(mine, [&]<class V>(const V& typed) {
      using S = typename V::value_type;
      return start_all_gather<S>(dev, typed, all.as<S>());
    });
  }
  Event start_send(Device& dev, const AnyTensor& x, int to, int tag = 0) {
    return with_type(x, [&]<class V>(const V& typed) { return start_send<typename V::value_type>(dev, typed, to, tag); });
  }
  Event start_receive(Device& dev, const AnyTensor& x, int from, int tag = 0) {
    return with_type(x, [&](const auto& typed) { return start_receive(dev, typed, from, tag); });
  }

  // The device has the result before what it is given next.
  template <class T>
  void all_reduce(Device& dev, Tensor1<T> x, Reduction how = Reduction::sum) {
    start_all_reduce(dev, x, how).device_wait(dev);
  }
  void all_reduce(Device& dev, const AnyTensor& x) { start_all_reduce(dev, x).device_wait(dev); }
  template <class T>
  void all_gather(Device& dev, Tensor1<const T> mine, Tensor1<T> all) {
    start_all_gather<T>(dev, mine, all).device_wait(dev);
  }
  template <class T>
  void reduce_scatter(Device& dev, Tensor1<const T> data, Tensor1<T> mine) {
    start_reduce_scatter<T>(dev, data, mine).device_wait(dev);
  }

  // Numbers on the host, for bookkeeping: every rank's values, in rank order. Not counted.
  std::vector<double> gather(std::span<const double> mine);
  // Their sum or maximum in rank order: the same bits on every rank.
  double sum(double mine);
  double max(double mine);
  void barrier() { sum(0); }

  // Handed to the transport by this rank.
  const TrafficCount& traffic() const { return traffic_; }
  Traffic traffic(Operation op) const { return traffic_.of(op); }
  void add(const TrafficCount& more) { traffic_.add(more); }  // counts it as if it had moved once more
  void clear_traffic() { traffic_ = {}; }
  // Records what begins from now on, host's numbers too; null: no more. The recorder outlives the events.
  void record(Recorder* recorder) {
    recorder_ = recorder;
    if (recorder) recorded_channel_ = recorder->channel(name_);
  }
  Transport& transport() { return *transport_; }

 private:
  // What a rank that is alone hands to itself; where both are one place, or there is none, nothing has to move.
  struct LocalCopy {
    const void* from = nullptr;
    void* to = nullptr;
  };
  template <class Start>
  Event start(Device& dev, Operation op, Index bytes, Start&& start, const LocalCopy& alone = {}) {
    if (size() == 1) {
      if (alone.from != alone.to && !dev.dry_run()) backend::copy_on_device(dev.queue, alone.from, alone.to, bytes);
      return {};
    }
    traffic_.add(op, dev.purpose(), {dev.times(), dev.times() * bytes});
    if (dev.dry_run()) return Event(dev.overlapped_transfers, dev.overlapped_transfers.begin(this, op, bytes, dev.times()));
    transport_->follow(dev.queue);
    const Recorder::Handle recorded = recording(op, bytes, true);
    return in_flight(op, bytes, start(), recorded);
  }
  Recorder::Handle recording(Operation op, Index bytes, bool counted) {
    return recorder_ ? recorder_->transfer(recorded_channel_, name_of(op).data(), bytes, counted) : Recorder::Handle();
  }
  Event in_flight(Operation, Index bytes, Transport::Ticket, Recorder::Handle);

  std::string name_;
  std::unique_ptr<Transport> transport_;
  ProgressRecord* progress_record_;
  Recorder* recorder_ = nullptr;
  int channel_ = -1, recorded_channel_ = -1;
  std::uint64_t started_ = 0;  // operations so far
  TrafficCount traffic_;
};

}  // namespace gyr
