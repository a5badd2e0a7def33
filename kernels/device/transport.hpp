// SPDX-License-Identifier: BSD-3-Clause
// Communication between the ranks of one communicator. Operations start at once and are completed by polling `done`.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "kernels/base/scalar.hpp"
#include "kernels/device/queue.hpp"

namespace gyr {

enum class Reduction { sum, max };

class Transport {
 public:
  using Ticket = int;  // a ticket names an operation in progress

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string name() const = 0;  // name of the library that moves device memory, for logs

  virtual Ticket all_reduce(void* data, Index count, DType type, Reduction) = 0;
  // reduce_scatter sums over the ranks. Here and in all_gather, `mine` may be part rank() of the other tensor. In
  // reduce_scatter, the other parts of `data` are undefined afterwards.
  virtual Ticket reduce_scatter(const void* data, void* mine, Index count_each, DType type) = 0;
  virtual Ticket all_gather(const void* mine, void* all, Index count_each, DType type) = 0;
  virtual Ticket broadcast(void* data, Index count, DType type, int root) = 0;
  virtual Ticket send(const void* data, Index count, DType type, int to, int tag) = 0;
  virtual Ticket receive(void* data, Index count, DType type, int from, int tag) = 0;
  // Part r of `data` goes to rank r, and part r of `received` comes from rank r. Parts have equal lengths, or the given
  // counts of elements.
  virtual Ticket all_to_all(const void* data, void* received, Index count_each, DType type) = 0;
  virtual Ticket all_to_all(const void* data, std::span<const Index> counts, void* received, std::span<const Index> received_counts, DType type) = 0;
  // A send and a receive at the same time, with the same tag.
  virtual Ticket shift(const void* data, Index count, int to, void* received, Index received_count, int from, DType type, int tag) = 0;
  virtual bool done(Ticket) = 0;  // polls; returns true once, after which the ticket is invalid
  virtual void rest() = 0;        // pause between two polls without progress

  // Operations that are started next begin when the work enqueued on the queue so far is done.
  virtual void follow(const Queue& queue) { queue.fence(); }
  // Lets later work of the queue wait for the operation, and invalidates the ticket. Returns false if only the host can
  // wait, by `done`.
  virtual bool order(const Queue&, Ticket) { return false; }
};

// Transport for dry runs: every operation is complete at once and moves no data.
std::unique_ptr<Transport> dry_transport(int rank, int size);

namespace backend {
// Transport for device memory; host memory still goes through `hosts`.
std::unique_ptr<Transport> device_transport(std::unique_ptr<Transport> hosts);
}  // namespace backend

}  // namespace gyr
