// SPDX-License-Identifier: BSD-3-Clause
// Implementation of the transport that stages device memory in pinned host memory.
#include "kernels/cuda/comm/staged_transport.hpp"

#include <numeric>
#include <utility>
#include <vector>

#include "kernels/comm/operations.hpp"
#include "kernels/cuda/machine/pinned_stock.hpp"
#include "kernels/cuda/machine/runtime.hpp"

namespace gyr::cuda {

namespace {

class StagedTransport final : public Transport {
 public:
  explicit StagedTransport(std::unique_ptr<Transport> hosts) : hosts_(std::move(hosts)) {}

  int rank() const override { return hosts_->rank(); }
  int size() const override { return hosts_->size(); }
  std::string name() const override { return hosts_->name() + " through host memory, because ranks share GPUs"; }

  Ticket all_reduce(void* data, Index count, DType type, Reduction how) override {
    Staging s(*this);
    void* const host = s.both(data, count * size_of(type));
    return s.in_flight(hosts_->all_reduce(host, count, type, how));
  }
  Ticket reduce_scatter(const void* data, void* mine, Index count_each, DType type) override {
    Staging s(*this);
    const Index each = count_each * size_of(type);
    const auto [host, part] = s.full_and_part(data, size() * each, mine, each, true);
    return s.in_flight(hosts_->reduce_scatter(host, part, count_each, type));
  }
  Ticket all_gather(const void* mine, void* all, Index count_each, DType type) override {
    Staging s(*this);
    const Index each = count_each * size_of(type);
    const auto [host, part] = s.full_and_part(all, size() * each, mine, each, false);
    return s.in_flight(hosts_->all_gather(part, host, count_each, type));
  }
  Ticket broadcast(void* data, Index count, DType type, int root) override {
    Staging s(*this);
    void* const host = s.both(data, count * size_of(type));
    return s.in_flight(hosts_->broadcast(host, count, type, root));
  }
  Ticket send(const void* data, Index count, DType type, int to, int tag) override {
    Staging s(*this);
    const void* const host = s.in(data, count * size_of(type));
    return s.in_flight(hosts_->send(host, count, type, to, tag));
  }
  Ticket receive(void* data, Index count, DType type, int from, int tag) override {
    Staging s(*this);
    void* const host = s.out(data, count * size_of(type));
    return s.in_flight(hosts_->receive(host, count, type, from, tag));
  }
  Ticket all_to_all(const void* data, void* received, Index count_each, DType type) override {
    Staging s(*this);
    const Index bytes = size() * count_each * size_of(type);
    const void* const from = s.in(data, bytes);
    void* const to = s.out(received, bytes);
    return s.in_flight(hosts_->all_to_all(from, to, count_each, type));
  }
  Ticket all_to_all(const void* data, std::span<const Index> counts, void* received, std::span<const Index> received_counts, DType type) override {
    Staging s(*this);
    const auto bytes = [&](std::span<const Index> c) { return std::accumulate(c.begin(), c.end(), Index(0)) * size_of(type); };
    const void* const from = s.in(data, bytes(counts));
    void* const to = s.out(received, bytes(received_counts));
    return s.in_flight(hosts_->all_to_all(from, counts, to, received_counts, type));
  }
  Ticket shift(const void* data, Index count, int to, void* received, Index received_count, int from, DType type, int tag) override {
    Staging s(*this);
    const void* const given = s.in(data, count * size_of(type));
    void* const taken = s.out(received, received_count * size_of(type));
    return s.in_flight(hosts_->shift(given, count, to, taken, received_count, from, type, tag));
  }

  bool done(Ticket ticket) override {
    InFlight& operation = in_flight_[ticket];
    if (!hosts_->done(operation.ticket)) return false;
    for (const Copy& c : operation.copies) backend::copy_to_device(c.from, c.to, c.bytes);
    for (const PinnedStock::Piece& piece : operation.pieces) stock_.give_back(piece);
    operation = {};
    in_flight_.release(ticket);
    return true;
  }
  void rest() override { hosts_->rest(); }

 private:
  struct Copy {
    const void* from;
    void* to;
    Index bytes;
  };
  struct InFlight {
    Ticket ticket = 0;
    std::vector<PinnedStock::Piece> pieces;
    std::vector<Copy> copies;  // copies to device memory, made when the operation is done
  };

  // Host buffers that replace device memory in one operation.
  class Staging {
   public:
    explicit Staging(StagedTransport& transport) : transport_(transport) {}
    void* in(const void* data, Index bytes) {
      void* const host = place(data, bytes);
      if (host != data) backend::copy_to_host(data, host, bytes);
      return host;
    }
    void* out(void* data, Index bytes) {
      void* const host = place(data, bytes);
      if (host != data) operation_.copies.push_back({host, data, bytes});
      return host;
    }
    void* both(void* data, Index bytes) {
      void* const host = in(data, bytes);
      if (host != data) operation_.copies.push_back({host, data, bytes});
      return host;
    }
    // Stages a full buffer and this rank's part of it, which may be inside the full buffer. reduces: the full buffer is
    // read and the part is written (reduce-scatter); otherwise vice versa (all-gather).
    std::pair<void*, void*> full_and_part(const void* full, Index bytes, const void* part, Index part_bytes, bool reduces) {
      const Index inside = static_cast<const char*>(part) - static_cast<const char*>(full);
      const bool in_place = inside == transport_.rank() * part_bytes;
      void *const all = const_cast<void*>(full), *const mine = const_cast<void*>(part);
      if (!in_place) {
        void* const first = reduces ? in(all, bytes) : out(all, bytes);
        return {first, reduces ? out(mine, part_bytes) : in(mine, part_bytes)};
      }
      void* const host = place(full, bytes);
      char* const host_part = static_cast<char*>(host) + inside;
      if (host == full) return {host, host_part};
      if (reduces) backend::copy_to_host(full, host, bytes), operation_.copies.push_back({host_part, mine, part_bytes});
      else backend::copy_to_host(part, host_part, part_bytes), operation_.copies.push_back({host, all, bytes});
      return {host, host_part};
    }
    Ticket in_flight(Ticket hosts) {
      operation_.ticket = hosts;
      return transport_.keep(std::move(operation_));
    }

   private:
    void* place(const void* data, Index bytes) {
      if (bytes == 0 || !on_device(data)) return const_cast<void*>(data);
      return operation_.pieces.emplace_back(transport_.stock_.take(bytes)).memory;
    }
    StagedTransport& transport_;
    InFlight operation_;
  };

  Ticket keep(InFlight operation) {
    const Ticket ticket = in_flight_.next();
    in_flight_[ticket] = std::move(operation);
    return ticket;
  }

  std::unique_ptr<Transport> hosts_;
  PinnedStock stock_;
  Operations<InFlight> in_flight_;
};

}  // namespace

bool on_device(const void* p) {
  cudaPointerAttributes a;
  check(cudaPointerGetAttributes(&a, p), "pointer attributes");
  return a.type == cudaMemoryTypeDevice;
}

std::unique_ptr<Transport> staged_transport(std::unique_ptr<Transport> hosts) { return std::make_unique<StagedTransport>(std::move(hosts)); }

}  // namespace gyr::cuda
