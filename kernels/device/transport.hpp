// SPDX-License-Identifier: BSD-3-Clause
// How bytes travel between the ranks of one communicator. Operations start at once and are finished by polling `done`.
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
  using Ticket = int;  // names an operation under way

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string name() const = 0;  // what moves the device's memory, for people

  virtual Ticket all_reduce(void* data, Index count, DType type, Reduction) = 0;
  // A sum. `mine`, here and there, may be part number rank() of the whole; other parts of `data` are lost then.
  virtual Ticket reduce_scatter(const void* data, void* mine, Index count_each, DType type) = 0;
  virtual Ticket all_gather(const void* mine, void* all, Index count_each, DType type) = 0;
  virtual Ticket broadcast(void* data, Index count, DType type, int root) = 0;
  virtual Ticket send(const void* data, Index count, DType type, int to, int tag) = 0;
  virtual Ticket receive(void* data, Index count, DType type, int from, int tag) = 0;
  // Part r of `data` goes to rank r, and part r of `received` comes from there: parts of equal length, or of as many elements as counted.
  virtual Ticket all_to_all(const void* data, void* received, Index count_each, DType type) = 0;
  virtual Ticket all_to_all(const void* data, std::span<const Index> counts, void* received, std::span<const Index> received_counts, DType type) = 0;
  // A send and a receive at once, under the same tag.
  virtual Ticket shift(const void* data, Index count, int to, void* received, Index received_count, int from, DType type, int tag) = 0;
  virtual bool done(Ticket) = 0;  // polls; true once, after which the ticket is void
  virtual void rest() = 0;        // what to do between two polls that found nothing

  // What is started next begins when the queue has done what it was told.
  virtual void follow(const Queue& queue) { queue.fence(); }
  // The queue waits for the operation before it does what it is told next, and the ticket is void; false where only the host can wait, by `done`.
  virtual bool order(const Queue&, Ticket) { return false; }
};

// For dry runs: every operation is done at once and moves nothing.
std::unique_ptr<Transport> dry_transport(int rank, int size);

namespace backend {
// For the device's memory, and the host's as before.
std::unique_ptr<Transport> device_transport(std::unique_ptr<Transport> hosts);
}  // namespace backend

}  // namespace gyr
