// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/comm/mpi/transport.hpp"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/base/threads.hpp"
#include "kernels/comm/mpi/node.hpp"
#include "kernels/comm/operations.hpp"

namespace gyr {

namespace {

// MPI has no bf16 type: an element is two opaque bytes, and reductions are computed in float.
template <class Combine>
void combine_bf16(void* in, void* inout, int* count, Combine combine) {
  const auto* a = static_cast<const bf16*>(in);
  auto* b = static_cast<bf16*>(inout);
  for (int i = 0; i < *count; ++i) b[i] = bf16(combine(float(a[i]), float(b[i])));
}
void sum_bf16(void* in, void* inout, int* count, MPI_Datatype*) {
  combine_bf16(in, inout, count, [](float a, float b) { return a + b; });
}
void max_bf16(void* in, void* inout, int* count, MPI_Datatype*) {
  combine_bf16(in, inout, count, [](float a, float b) { return std::max(a, b); });
}

class MpiTransport final : public Transport {
 public:
  MpiTransport(MPI_Comm comm, WaitPolicy patience) : comm_(comm), patience_(patience) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    MPI_Type_contiguous(2, MPI_BYTE, &bf16_type_);
    MPI_Type_commit(&bf16_type_);
    MPI_Op_create(sum_bf16, 1, &bf16_sum_);
    MPI_Op_create(max_bf16, 1, &bf16_max_);
  }
  ~MpiTransport() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized) return;
    MPI_Op_free(&bf16_sum_);
    MPI_Op_free(&bf16_max_);
    MPI_Type_free(&bf16_type_);
    MPI_Comm_free(&comm_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "MPI"; }

  Ticket all_reduce(void* data, Index count, DType type, Reduction how) override {
    return in_parts(count, [&](Index first, int n, MPI_Request* request) {
      MPI_Iallreduce(MPI_IN_PLACE, at(data, first, type), n, mpi(type), mpi(how, type), comm_, request);
    });
  }
  // In place, MPI puts the result at the beginning of the data; `done` moves it to `mine`.
  Ticket reduce_scatter(const void* data, void* mine, Index count_each, DType type) override {
    ensure(count_each <= most, "reduce_scatter: {} elements per rank exceed one MPI call", count_each);
    const bool in_place = mine == at(const_cast<void*>(data), rank_ * count_each, type);
    const Ticket ticket = started([&](MPI_Request* request) {
      MPI_Ireduce_scatter_block(in_place ? MPI_IN_PLACE : data, in_place ? const_cast<void*>(data) : mine, int(count_each), mpi(type),
                                mpi(Reduction::sum, type), comm_, request);
    });
    if (in_place) in_flight_[ticket].to_move = {data, mine, std::size_t(count_each * size_of(type))};
    return ticket;
  }
  Ticket all_gather(const void* mine, void* all, Index count_each, DType type) override {
    ensure(count_each <= most, "all_gather: {} elements per rank exceed one MPI call", count_each);
    const bool in_place = mine == at(all, rank_ * count_each, type);
    return started([&](MPI_Request* request) {
      MPI_Iallgather(in_place ? MPI_IN_PLACE : mine, int(count_each), mpi(type), all, int(count_each), mpi(type), comm_, request);
    });
  }
  Ticket broadcast(void* data, Index count, DType type, int root) override {
    return in_parts(count, [&](Index first, int n, MPI_Request* request) { MPI_Ibcast(at(data, first, type), n, mpi(type), root, comm_, request); });
  }
  Ticket send(const void* data, Index count, DType type, int to, int tag) override {
    const Ticket ticket = in_flight_.next();
    add_send(ticket, data, count, type, to, tag);
    return ticket;
  }
  Ticket receive(void* data, Index count, DType type, int from, int tag) override {
    const Ticket ticket = in_flight_.next();
    add_receive(ticket, data, count, type, from, tag);
    return ticket;
  }
  Ticket all_to_all(const void* data, void* received, Index count_each, DType type) override {
    ensure(count_each <= most, "all_to_all: {} elements per rank exceed one MPI call", count_each);
    return started(
        [&](MPI_Request* request) { MPI_Ialltoall(data, int(count_each), mpi(type), received, int(count_each), mpi(type), comm_, request); });
  }
  Ticket all_to_all(const void* data, std::span<const Index> counts, void* received, std::span<const Index> received_counts, DType type) override {
    std::vector<int> table = counts_and_places(counts);
    const std::vector<int> received_table = counts_and_places(received_counts);
    table.insert(table.end(), received_table.begin(), received_table.end());
    const Ticket ticket = in_flight_.next();
    InFlight& in_flight = in_flight_[ticket];
    in_flight.table = std::move(table);
    const int* counts_and_offsets = in_flight.table.data();
    MPI_Ialltoallv(data, counts_and_offsets, counts_and_offsets + size_, mpi(type), received, counts_and_offsets + 2 * size_,
                   counts_and_offsets + 3 * size_, mpi(type), comm_, &in_flight.parts.emplace_back());
    return ticket;
  }
  Ticket shift(const void* data, Index count, int to, void* received, Index received_count, int from, DType type, int tag) override {
    const Ticket ticket = in_flight_.next();
    add_receive(ticket, received, received_count, type, from, tag);
    add_send(ticket, data, count, type, to, tag);
    return ticket;
  }

  bool done(Ticket ticket) override {
    auto& parts = in_flight_[ticket].parts;
    int flag = 0;
    MPI_Testall(int(parts.size()), parts.data(), &flag, MPI_STATUSES_IGNORE);
    if (!flag) return false;
    rests_ = 0;
    parts.clear();
    const Move move = std::exchange(in_flight_[ticket].to_move, {});
    if (move.bytes > 0) std::memmove(move.to, move.from, move.bytes);
    in_flight_.release(ticket);
    return true;
  }

  void rest() override {
    if (patience_ == WaitPolicy::spin) return;
    if (++rests_ < sleepless_) {
      sched_yield();
      return;
    }
    const timespec pause{0, 20'000};
    nanosleep(&pause, nullptr);
  }

 private:
  static constexpr Index most = Index(1) << 30;  // most elements in one MPI call, because counts are int

  static void* at(void* data, Index first, DType type) { return static_cast<char*>(data) + first * size_of(type); }

  MPI_Datatype mpi(DType type) const {
    switch (type) {
      case DType::f64: return MPI_DOUBLE;
      case DType::f32: return MPI_FLOAT;
      case DType::bf16: return bf16_type_;
      case DType::i32: return MPI_INT32_T;
      case DType::i64: return MPI_INT64_T;
      case DType::u8: return MPI_UINT8_T;
    }
    return MPI_DATATYPE_NULL;
  }
  MPI_Op mpi(Reduction how, DType type) const {
    if (type == DType::bf16) return how == Reduction::sum ? bf16_sum_ : bf16_max_;
    return how == Reduction::sum ? MPI_SUM : MPI_MAX;
  }

  template <class Start>
  Ticket started(Start&& start) {
    const Ticket ticket = in_flight_.next();
    start(&in_flight_[ticket].parts.emplace_back());
    return ticket;
  }
  template <class Start>
  Ticket in_parts(Index count, Start&& start) {
    const Ticket ticket = in_flight_.next();
    add_parts(ticket, count, start);
    return ticket;
  }
  template <class Start>
  void add_parts(Ticket ticket, Index count, Start&& start) {
    for (Index first = 0; first < count; first += most) start(first, int(std::min(most, count - first)), &in_flight_[ticket].parts.emplace_back());
  }
  void add_send(Ticket ticket, const void* data, Index count, DType type, int to, int tag) {
    add_parts(ticket, count, [&](Index first, int n, MPI_Request* request) {
      MPI_Isend(at(const_cast<void*>(data), first, type), n, mpi(type), to, tag, comm_, request);
    });
  }
  void add_receive(Ticket ticket, void* data, Index count, DType type, int from, int tag) {
    add_parts(ticket, count,
              [&](Index first, int n, MPI_Request* request) { MPI_Irecv(at(data, first, type), n, mpi(type), from, tag, comm_, request); });
  }
  // Element counts of all ranks' parts, followed by the element offsets of these parts.
  std::vector<int> counts_and_places(std::span<const Index> counts) const {
    ensure(int(counts.size()) == size_, "all_to_all: {} counts for {} ranks", counts.size(), size_);
    std::vector<int> table(2 * size_);
    Index place = 0;
    for (int r = 0; r < size_; place += counts[r++]) {
      ensure(counts[r] >= 0 && counts[r] <= most - place, "all_to_all: a part of {} elements at offset {} is negative or exceeds one MPI call",
             counts[r], place);
      table[r] = int(counts[r]), table[size_ + r] = int(place);
    }
    return table;
  }

  MPI_Comm comm_;
  WaitPolicy patience_;
  static constexpr int sleepless_ = 1000;  // calls of sched_yield before the first sleep, about a millisecond if no other rank has work
  int rests_ = 0;                          // calls of rest() since an operation completed
  int rank_ = 0, size_ = 1;
  MPI_Datatype bf16_type_;
  MPI_Op bf16_sum_, bf16_max_;
  struct Move {
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t bytes = 0;
  };
  struct InFlight {
    std::vector<MPI_Request> parts;
    std::vector<int> table;  // counts and offsets, which MPI reads until the operation is done
    Move to_move = {};       // copy to make once the operation is done
  };
  Operations<InFlight> in_flight_;
};

}  // namespace

WaitPolicy wait_policy_of(MPI_Comm world) {
  const Crowd crowd = machine_load_of(world, rank_threads());
  return crowd.threads <= crowd.cores ? WaitPolicy::spin : WaitPolicy::yield;
}

std::unique_ptr<Transport> mpi_transport(MPI_Comm comm, WaitPolicy patience) { return std::make_unique<MpiTransport>(comm, patience); }

}  // namespace gyr
