// SPDX-License-Identifier: BSD-3-Clause
// The ranks along one axis of a layout (an MPI or NCCL communicator). Operations take tensors, are started and waited
// for separately (event.hpp), and are counted: calls and payload bytes per operation, which tests compare with closed
// forms. With one rank, no operation is communicated or counted.
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
  // `progress_record` records the operation that this rank waits for. It may be null, and must outlive the communicator's
  // events.
  Communicator(std::string name, std::unique_ptr<Transport> transport, ProgressRecord* progress_record = nullptr);

  const std::string& name() const { return name_; }
  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  std::string transport_name() const { return transport_->name(); }

  // In-place all-reduce: x = sum or maximum of x over all ranks.
  template <class T>
  Event start_all_reduce(Device& dev, Tensor1<T> x, Reduction how = Reduction::sum) {
    return start(dev, Operation::all_reduce, x.span() * sizeof(T), [&] { return transport_->all_reduce(x.data(), x.span(), dtype_of<T>(), how); });
  }
  // Reduce-scatter: mine (n) = this rank's part of the sum over all ranks of data (size * n). `mine` is separate memory
  // or this rank's part of `data`. In the second case the other parts of `data` are undefined afterwards.
  template <class T>
  Event start_reduce_scatter(Device& dev, Tensor1<const T> data, Tensor1<T> mine) {
    return start(dev, Operation::reduce_scatter, data.span() * sizeof(T),
                 [&] { return transport_->reduce_scatter(data.data(), mine.data(), mine.span(), dtype_of<T>()); }, {data.data(), mine.data()});
  }
  // All-gather: all (size * n) = mine (n) of every rank, in rank order. `mine` is separate memory or this rank's part
  // of `all`.
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
  // All-to-all: part r of `size` equal parts of `data` goes to rank r; `received` holds the parts from all ranks in
  // rank order.
  template <class T>
  Event start_all_to_all(Device& dev, Tensor1<const T> data, Tensor1<T> received) {
    return start(dev, Operation::all_to_all, data.span() * sizeof(T),
                 [&] { return transport_->all_to_all(data.data(), received.data(), data.span() / size(), dtype_of<T>()); },
                 {data.data(), received.data()});
  }
  // All-to-all with parts of any length: counts[r] elements go to rank r, and received_counts[r] elements arrive from
  // rank r.
  template <class T>
  Event start_all_to_all(Device& dev, Tensor1<const T> data, std::span<const Index> counts, Tensor1<T> received,
                         std::span<const Index> received_counts) {
    return start(dev, Operation::all_to_all, data.span() * sizeof(T),
                 [&] { return transport_->all_to_all(data.data(), counts, received.data(), received_counts, dtype_of<T>()); },
                 {data.data(), received.data()});
  }
  // Sends to one rank and receives from another at the same time, for ring exchange.
  template <class T>
  Event start_shift(Device& dev, Tensor1<const T> x, int to, Tensor1<T> received, int from, int tag = 0) {
    return start(dev, Operation::shift, x.span() * sizeof(T),
                 [&] { return transport_->shift(x.data(), x.span(), to, received.data(), received.span(), from, dtype_of<T>(), tag); },
                 {x.data(), received.data()});
  }

  // The same operations for tensors whose scalar type is known only at run time.
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

  // Start and device_wait in one call: work enqueued on the device afterwards sees the result.
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

  // All-gather of host values, for bookkeeping: the values of every rank, in rank order. Not counted as traffic.
  std::vector<double> gather(std::span<const double> mine);
  // Sum or maximum over the ranks of a host value, computed in rank order: every rank gets the same bits.
  double sum(double mine);
  double max(double mine);
  void barrier() { sum(0); }

  // Traffic that this rank has passed to the transport.
  const TrafficCount& traffic() const { return traffic_; }
  Traffic traffic(Operation op) const { return traffic_.of(op); }
  void add(const TrafficCount& more) { traffic_.add(more); }  // counts this traffic as if it had been communicated once more
  void clear_traffic() { traffic_ = {}; }
  // Records operations that start from now on, including those on host values; null stops recording. The recorder must
  // outlive the events.
  void record(Recorder* recorder) {
    recorder_ = recorder;
    if (recorder) recorded_channel_ = recorder->channel(name_);
  }
  Transport& transport() { return *transport_; }

 private:
  // Source and destination of the local copy that replaces an operation on a single rank. Nothing is copied if they are
  // equal or null. No member has an initializer, because Clang rejects `= {}` for a nested class that has one.
  struct LocalCopy {
    const void* from;
    void* to;
  };
  template <class Start>
  Event start(Device& dev, Operation op, Index bytes, Start&& start, const LocalCopy& single_rank_copy = {}) {
    if (size() == 1) {
      if (single_rank_copy.from != single_rank_copy.to && !dev.dry_run())
        backend::copy_on_device(dev.queue, single_rank_copy.from, single_rank_copy.to, bytes);
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
  std::uint64_t started_ = 0;  // number of operations started so far
  TrafficCount traffic_;
};

}  // namespace gyr
