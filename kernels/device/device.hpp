// SPDX-License-Identifier: BSD-3-Clause
// One device of one rank: the queue that runs its kernels, its scratch memory, and the count of its work.
// A dry-run device runs nothing and counts everything, so that planning executes the program itself without the arithmetic.
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

// GEMM library on hosts: chosen by processor and shape (see gemm), or always the same one.
enum class GemmLibrary { automatic, cblas, onednn };

// Shape of a GEMM as passed to gemm: op(A) (M,K) op(B) (K,N), with the row strides of A, B and C.
struct GemmShape {
  std::string_view kernel;              // kernel name, a string literal
  bool transpose_a, transpose_b, adds;  // adds: the result is added to C (beta != 0)
  Index m, n, k, stride_a, stride_b, stride_c;
  DType in, out;
  auto operator<=>(const GemmShape&) const = default;
  std::size_t hash() const {
    std::size_t hash = kernel.size();
    for (const Index extent : {m, n, k, stride_a, stride_b, stride_c}) hash = mixed(hash, std::uint64_t(extent));
    return hash;
  }
};
using GemmCounts = ShapeCounts<GemmShape, Index>;  // number of calls of each shape

class GemmCache;

class Device {
 public:
  Device(bool dry_run, Index scratch_bytes);
  Device(bool dry_run, Arena scratch) : queue(dry_run), scratch(std::move(scratch)), dry_run_(dry_run) {}

  bool dry_run() const { return dry_run_; }
  // True if memory is planned as on a GPU. A dry run may plan for another kind of device than this build computes on.
  bool gpu = backend::on_gpu();
  bool plans_foreign_gpu() const { return gpu && !backend::on_gpu(); }
  Queue queue;
  void fence() {
    host_waits([&] { queue.fence(); });
  }
  // Notes that work enqueued from now on waits for the communication `call`. The next time the host waits for the
  // device, `progress_record` (may be null) records a wait for `call`.
  void record_after(ProgressRecord* progress_record, const NamedCall& call) { progress_record_ = progress_record, call_ = call; }
  // Runs wait(), in which the host waits for the device, and records the wait in the progress record.
  template <class Wait>
  void host_waits(const Wait& wait) {
    const ProgressRecord::Waiting waiting(std::exchange(progress_record_, nullptr), call_, ProgressRecord::Meanwhile::device_computes);
    wait();
  }
  // Threads per Kokkos team in for_teams; 0: Kokkos chooses. Always 1 on hosts, so that the sums of a team have the
  // same order for any number of threads.
  static inline int team_size = std::is_same_v<Space, Kokkos::DefaultHostExecutionSpace> ? 1 : 0;
  Arena scratch;
  GemmLibrary library = GemmLibrary::automatic;
  GemmCounts gemm_counts;      // GEMM shapes and their counts; filled on a dry-run device only
  LaunchCounts launch_counts;  // launches and seconds per kernel and size; filled on a dry-run device, or if times_launches is set
  bool times_launches = false;
  OverlappedTransfers overlapped_transfers;  // transfers that overlap with kernels; filled on a dry-run device only
  std::shared_ptr<GemmCache> gemm_cache;     // GEMM plans that the library has compiled or selected for the shapes used on this device
  // A device may have lanes: each lane is a device for one thread (kernels/kokkos/lanes.hpp).
  bool is_lane = false;
  std::vector<std::shared_ptr<GemmCache>> lane_gemm_caches;

  // Records the launch of a kernel: `if (auto run = dev.launch("name", flops, bytes)) { ... }`. The result is false on
  // a dry-run device.
  class Launch {
   public:
    Launch(Device& device, std::size_t entry, std::size_t count);
    ~Launch();
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;
    explicit operator bool() const { return !device_.dry_run_; }

   private:
    Device& device_;
    std::size_t entry_, count_;  // indices in work_ and in launch_counts
    std::chrono::steady_clock::time_point start_;
  };
  [[nodiscard]] Launch launch(const char* kernel, double flops, double bytes);

  // On a dry-run device: launches recorded while this object exists count `times` times, perhaps zero. Nested objects
  // multiply.
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

  // Label of the traffic that is counted while this object exists; an inner object overrides it. A string literal with
  // the purpose and the shape of the data, for instance "head: rows x hidden".
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
  // Adds counts as if that work were done once more; the kernels must be those of work(), in the same order.
  void add(const std::vector<Work>& more);
  void clear_work() { work_.clear(); }
  // Adds the work of a lane: its counts multiplied by `times`, its seconds by `part_of_seconds`.
  void join(const Device& lane, Index times, double part_of_seconds);
  // Records kernels from now on; null stops recording.
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

// Calls body(i) for i = 0 ... count - 1. If all iterations record equal work, a dry run executes only the first and
// counts it `count` times.
template <class Body>
void for_equal(Device& dev, Index count, const Body& body, bool equal = true) {
  if (count > 0 && equal && dev.dry_run()) {
    const Device::Repeat all(dev, count);
    return body(Index(0));
  }
  for (Index i = 0; i < count; ++i) body(i);
}

}  // namespace gyr
