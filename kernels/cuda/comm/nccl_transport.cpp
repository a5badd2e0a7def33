// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/comm/nccl_transport.hpp"

#include <fmt/format.h>
#include <nccl.h>

#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/comm/operations.hpp"
#include "kernels/cuda/comm/nccl_check.hpp"
#include "kernels/cuda/comm/registered_memory.hpp"
#include "kernels/cuda/comm/staged_transport.hpp"
#include "kernels/cuda/machine/signal.hpp"

namespace gyr {

namespace {

using cuda::check;
using cuda::Signal;

ncclDataType_t nccl(DType type) {
  switch (type) {
    case DType::f64: return ncclFloat64;
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::i32: return ncclInt32;
    case DType::i64: return ncclInt64;
    case DType::u8: return ncclUint8;
  }
  return ncclUint8;
}

// An NCCL communicator, the stream of its operations, and the memory registered with it.
class Channel {
 public:
  explicit Channel(ncclComm_t communicator) : communicator_(communicator) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creation of a stream for NCCL");
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() {
    memory_.reset();
    cudaStreamDestroy(stream_);
    if (communicator_) ncclCommDestroy(communicator_);
  }
  void register_memory(int rank, int size) { memory_.emplace(communicator_, stream_, rank, size); }
  // Aborts the communicator, which ends its operations in progress.
  void abort() {
    if (memory_) memory_->forget();
    ncclCommAbort(std::exchange(communicator_, nullptr));
  }
  ncclComm_t communicator() const { return communicator_; }
  cudaStream_t stream() const { return stream_; }

 private:
  ncclComm_t communicator_;
  cudaStream_t stream_ = nullptr;
  std::optional<RegisteredMemory> memory_;
};

class NcclTransport final : public Transport {
 public:
  explicit NcclTransport(std::unique_ptr<Transport> hosts)
      : rank_(hosts->rank()), size_(hosts->size()), hosts_(cuda::staged_transport(std::move(hosts))), all_(joined()) {
    for (int from = 0; from < size_; ++from)
      for (const int to : neighbours(from)) add_pair(from, to);
    if (from_first(RegisteredMemory::wanted())) register_memory();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override {
    int version = 0;
    check_nccl(ncclGetVersion(&version), "version query", rank_, size_);
    return fmt::format("NCCL {}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
  }

  void follow(const Queue& queue) override { ready_.record(queue.state().stream); }

  Ticket all_reduce(void* data, Index count, DType type, Reduction how) override {
    if (!cuda::on_device(data)) return by_host(hosts_->all_reduce(data, count, type, how));
    return on(all_, "all_reduce", [&](ncclComm_t c, cudaStream_t s) {
      return ncclAllReduce(data, data, std::size_t(count), nccl(type), how == Reduction::sum ? ncclSum : ncclMax, c, s);
    });
  }
  Ticket reduce_scatter(const void* data, void* mine, Index count_each, DType type) override {
    if (!cuda::on_device(data)) return by_host(hosts_->reduce_scatter(data, mine, count_each, type));
    return on(all_, "reduce_scatter",
              [&](ncclComm_t c, cudaStream_t s) { return ncclReduceScatter(data, mine, std::size_t(count_each), nccl(type), ncclSum, c, s); });
  }
  Ticket all_gather(const void* mine, void* all, Index count_each, DType type) override {
    if (!cuda::on_device(all)) return by_host(hosts_->all_gather(mine, all, count_each, type));
    return on(all_, "all_gather", [&](ncclComm_t c, cudaStream_t s) { return ncclAllGather(mine, all, std::size_t(count_each), nccl(type), c, s); });
  }
  Ticket broadcast(void* data, Index count, DType type, int root) override {
    if (!cuda::on_device(data)) return by_host(hosts_->broadcast(data, count, type, root));
    return on(all_, "broadcast", [&](ncclComm_t c, cudaStream_t s) { return ncclBroadcast(data, data, std::size_t(count), nccl(type), root, c, s); });
  }
  Ticket send(const void* data, Index count, DType type, int to, int tag) override {
    const auto pair = pairs_.find({rank_, to});
    if (pair == pairs_.end() || !cuda::on_device(data)) return by_host(hosts_->send(data, count, type, to, tag));
    return on(pair->second, "send", [&](ncclComm_t c, cudaStream_t s) { return ncclSend(data, std::size_t(count), nccl(type), 1, c, s); });
  }
  Ticket receive(void* data, Index count, DType type, int from, int tag) override {
    const auto pair = pairs_.find({from, rank_});
    if (pair == pairs_.end() || !cuda::on_device(data)) return by_host(hosts_->receive(data, count, type, from, tag));
    return on(pair->second, "receive", [&](ncclComm_t c, cudaStream_t s) { return ncclRecv(data, std::size_t(count), nccl(type), 0, c, s); });
  }
  Ticket all_to_all(const void* data, void* received, Index count_each, DType type) override {
    if (!cuda::on_device(data)) return by_host(hosts_->all_to_all(data, received, count_each, type));
    const std::vector<Index> counts(static_cast<std::size_t>(size_), count_each);
    return exchange(data, counts, received, counts, type);
  }
  Ticket all_to_all(const void* data, std::span<const Index> counts, void* received, std::span<const Index> received_counts, DType type) override {
    if (!cuda::on_device(data)) return by_host(hosts_->all_to_all(data, counts, received, received_counts, type));
    return exchange(data, counts, received, received_counts, type);
  }
  Ticket shift(const void* data, Index count, int to, void* received, Index received_count, int from, DType type, int tag) override {
    const Ticket sent = send(data, count, type, to, tag), taken = receive(received, received_count, type, from, tag);
    in_flight_[sent].join(in_flight_[taken]);
    release(taken);
    return sent;
  }

  bool done(Ticket ticket) override {
    InFlight& operation = in_flight_[ticket];
    if (!operation.hosts.empty()) cudaStreamQuery(all_.stream());  // lets the device progress while the host waits
    while (!operation.hosts.empty()) {
      if (!hosts_->done(operation.hosts.back())) return false;
      operation.hosts.pop_back();
    }
    for (const Signal& signal : operation.signals)
      if (!signal.done()) return failed(), false;
    release(ticket);
    return true;
  }
  bool order(const Queue& queue, Ticket ticket) override {
    InFlight& operation = in_flight_[ticket];
    if (!operation.hosts.empty()) return false;
    for (const Signal& signal : operation.signals) signal.wait_in(queue.state().stream);
    release(ticket);
    return true;
  }
  void rest() override { hosts_->rest(); }

 private:
  struct InFlight {
    std::vector<Ticket> hosts;  // tickets of the host transport
    std::vector<Signal> signals;
    void join(InFlight& other) {
      hosts.insert(hosts.end(), other.hosts.begin(), other.hosts.end());
      std::move(other.signals.begin(), other.signals.end(), std::back_inserter(signals));
      other.hosts.clear(), other.signals.clear();
    }
  };

  // Broadcasts the value of rank 0, in host memory, to all ranks.
  template <class T>
  T from_first(T value) {
    const Ticket ticket = hosts_->broadcast(&value, Index(sizeof value), DType::u8, 0);
    while (!hosts_->done(ticket)) hosts_->rest();
    return value;
  }
  ncclComm_t joined() {
    cuda::take_device();
    ncclUniqueId id{};
    if (rank_ == 0) check_nccl(ncclGetUniqueId(&id), "creation of a unique id", rank_, size_);
    ncclComm_t communicator = nullptr;
    check_nccl(ncclCommInitRank(&communicator, size_, from_first(id), rank_), "creation of a communicator", rank_, size_);
    return communicator;
  }
  void register_memory() {
    all_.register_memory(rank_, size_);
    for (auto& [pair, channel] : pairs_) channel.register_memory(rank_, size_);
  }
  std::vector<int> neighbours(int rank) const {
    if (size_ == 1) return {};
    if (size_ == 2) return {1 - rank};
    return {(rank + 1) % size_, (rank + size_ - 1) % size_};
  }
  void add_pair(int from, int to) {
    ncclComm_t pair = nullptr;
    const bool mine = rank_ == from || rank_ == to;
    check_nccl(ncclCommSplit(all_.communicator(), mine ? 0 : NCCL_SPLIT_NOCOLOR, rank_ == from ? 0 : 1, &pair, nullptr),
               "creation of a communicator for two neighbours", rank_, size_);
    if (mine) pairs_.try_emplace({from, to}, pair);
  }

  template <class Start>
  Ticket on(const Channel& channel, const char* what, const Start& start) {
    ready_.wait_in(channel.stream());
    check_nccl(start(channel.communicator(), channel.stream()), what, rank_, size_);
    const Ticket ticket = in_flight_.next();
    Signal signal = this->signal();
    signal.record(channel.stream());
    in_flight_[ticket].signals.push_back(std::move(signal));
    return ticket;
  }
  Ticket by_host(Ticket host) {
    const Ticket ticket = in_flight_.next();
    in_flight_[ticket].hosts.push_back(host);
    return ticket;
  }
  Ticket exchange(const void* data, std::span<const Index> counts, void* received, std::span<const Index> received_counts, DType type) {
    return on(all_, "all_to_all", [&](ncclComm_t c, cudaStream_t s) {
      const char* from = static_cast<const char*>(data);
      char* to = static_cast<char*>(received);
      check_nccl(ncclGroupStart(), "all_to_all", rank_, size_);
      for (int r = 0; r < size_; ++r) {
        const auto n = std::size_t(counts[std::size_t(r)]), m = std::size_t(received_counts[std::size_t(r)]);
        if (n > 0) check_nccl(ncclSend(from, n, nccl(type), r, c, s), "all_to_all", rank_, size_);
        if (m > 0) check_nccl(ncclRecv(to, m, nccl(type), r, c, s), "all_to_all", rank_, size_);
        from += n * std::size_t(size_of(type)), to += m * std::size_t(size_of(type));
      }
      return ncclGroupEnd();
    });
  }
  // Reports an asynchronous error of NCCL, if there is one, and aborts the communicator. The other ranks notice through
  // their watchdogs.
  void failed() {
    ncclResult_t state = ncclSuccess;
    check_nccl(ncclCommGetAsyncError(all_.communicator(), &state), "error state query", rank_, size_);
    if (state == ncclSuccess || state == ncclInProgress) return;
    all_.abort();
    check_nccl(state, "an operation in progress", rank_, size_);
  }

  Signal signal() {
    if (signals_.empty()) return {};
    Signal last = std::move(signals_.back());
    signals_.pop_back();
    return last;
  }
  void release(Ticket ticket) {
    InFlight& operation = in_flight_[ticket];
    for (Signal& signal : operation.signals) signals_.push_back(std::move(signal));
    operation.signals.clear();
    in_flight_.release(ticket);
  }

  int rank_, size_;
  std::unique_ptr<Transport> hosts_;
  Channel all_;
  std::map<std::pair<int, int>, Channel> pairs_;  // channels of ring neighbours, by sender and receiver
  Signal ready_;                                  // event after the device's work that the next operation waits for
  Operations<InFlight> in_flight_;
  std::vector<Signal> signals_;  // free CUDA events, for reuse
};

}  // namespace

std::unique_ptr<Transport> nccl_transport(std::unique_ptr<Transport> hosts) { return std::make_unique<NcclTransport>(std::move(hosts)); }
bool is_nccl(const Transport& transport) { return dynamic_cast<const NcclTransport*>(&transport) != nullptr; }

}  // namespace gyr
