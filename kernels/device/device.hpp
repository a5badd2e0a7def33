// SPDX-License-Identifier: BSD-3-Clause
// One device of one rank: where kernels run, their scratch memory, and the count of their work.
// A dry-run device runs nothing and counts everything, so that a plan is the program itself, without the arithmetic.
#pragma once

#include <chrono>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/device/arena.hpp"
#include "kernels/device/overlapped_transfers.hpp"
#include "kernels/device/progress_record.hpp"
#include "kernels/device/queue.hpp"
#include "kernels/device/recorder.hpp"

namespace gyr {

struct Work {
  const char* kernel;
  Index calls = 0;
  double flops = 0, bytes = 0, seconds = 0;
};

// Who multiplies matrices on hosts: by processor and extents (see gemm), or always the same one.
enum class GemmLibrary { automatic, cblas, onednn };

// A product of matrices as gemm is asked for it: op(A) (M,K) op(B) (K,N), rows so far apart.
struct GemmShape {
  std::string_view kernel;              // a literal
  bool transpose_a, transpose_b, adds;  // adds: to what is there
  Index m, n, k, stride_a, stride_b, stride_c;
  DType in, out;
  auto operator<=>(const GemmShape&) const = default;
  std::size_t hash() const {
    std::size_t hash = kernel.size();
    for (const Index extent : {m, n, k, stride_a, stride_b, stride_c}) hash = mixed(hash, std::uint64_t(extent));
    return hash;
  }
};
using GemmCounts = ShapeCounts<GemmShape, Index>;  // how often

class GemmCache;

class Device {
 public:
  Device(bool dry_run, Index scratch_bytes);
  Device(bool dry_run, Arena scratch) : queue(dry_run), scratch(std::move(scratch)), dry_run_(dry_run) {}

  bool dry_run() const { return dry_run_; }
  Queue queue;
  void fence() {
    host_waits([&] { queue.fence(); });
  }
  // What the device does from now on is behind `call`: so the beacon, which may be null, is told when next the host waits for the device.
  void behind(ProgressRecord* progress_record, const NamedCall& call) { progress_record_ = progress_record, call_ = call; }
  // wait() waits for the device.
  template <class Wait>
  void host_waits(const Wait& wait) {
    const ProgressRecord::Waiting waiting(std::exchange(progress_record_, nullptr), call_, ProgressRecord::Meanwhile::device_computes);
    wait();
  }
  // Threads of a team of for_teams, 0: as many as Kokkos likes. One on hosts: what a team adds up has one order, whatever the number of threads.
  static inline int team_size = std::is_same_v<Space, Kokkos::DefaultHostExecutionSpace> ? 1 : 0;
  Arena scratch;
  GemmLibrary library = GemmLibrary::automatic;
  GemmCounts gemm_counts;      // on a dry-run device
  LaunchCounts launch_counts;  // of all kernels: on a dry-run device, and where times_launches
  bool times_launches = false;
  OverlappedTransfers overlapped_transfers;  // on a dry-run device
  std::shared_ptr<GemmCache> products;       // what the library of matrix products has compiled for the shapes it met here
  // A device may have lanes, each of which is one for a thread of its own (kernels/kokkos/lanes.hpp).
  bool is_lane = false;
  std::vector<std::shared_ptr<GemmCache>> lane_products;

  // Announces a kernel: `if (auto run = dev.launch("name", flops, bytes)) { ... }`. False on a dry-run device.
  class Launch {
   public:
    Launch(Device& device, std::size_t entry, std::size_t count);
    ~Launch();
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;
    explicit operator bool() const { return !device_.dry_run_; }

   private:
    Device& device_;
    std::size_t entry_, count_;  // places
    std::chrono::steady_clock::time_point start_;
  };
  [[nodiscard]] Launch launch(const char* kernel, double flops, double bytes);

  // On a dry-run device: what is announced while one of these exists counts `times` times, perhaps none, and so many times more within another.
  class Repeat {
   public:
    Repeat(Device& device, Index times);
    ~Repeat() { device_.times_ = before_; }
    Repeat(const Repeat&) = delete;
    Repeat& operator=(const Repeat&) = delete;

   private:
    Device& device_;
    Index before_;
  };
  Index times() const { return times_; }

  // What is communicated while one of these exists is for that, or for what one inside it says: a literal, with the shape of what moves.
  class [[nodiscard]] Purpose {
   public:
    Purpose(Device& device, const char* what) : device_(device), before_(std::exchange(device.purpose_, what)) {}
    ~Purpose() { device_.purpose_ = before_; }
    Purpose(const Purpose&) = delete;
    Purpose& operator=(const Purpose&) = delete;

   private:
    Device& device_;
    const char* before_;
  };
  const char* purpose() const { return purpose_; }

  // Work of each kernel since the last clear_work, in order of first use.
  const std::vector<Work>& work() const { return work_; }
  double flops() const;
  // Counts work as if it were done once more; the kernels are those of work(), in its order.
  void add(const std::vector<Work>& more);
  void clear_work() { work_.clear(); }
  // Counts the work of a lane so many times; of its seconds this part passed.
  void join(const Device& lane, Index times, double part_of_seconds);
  // Records kernels from now on; null: no more.
  void record(Recorder* recorder) { recorder_ = recorder; }
  Recorder* recorder() const { return recorder_; }

 private:
  Work& work_of(const char* kernel);

  bool dry_run_;
  Index times_ = 1;
  const char* purpose_ = "";
  Recorder* recorder_ = nullptr;
  ProgressRecord* progress_record_ = nullptr;
  NamedCall call_;
  std::vector<Work> work_;
};

// body(i) for i = 0 ... count - 1. Where all passes announce equal work, a dry run makes the first and counts it for all.
template <class Body>
void for_equal(Device& dev, Index count, const Body& body, bool equal = true) {
  if (count > 0 && equal && dev.dry_run()) {
    const Device::Repeat all(dev, count);
    return body(Index(0));
  }
  for (Index i = 0; i < count; ++i) body(i);
}

}  // namespace gyr
