// SPDX-License-Identifier: BSD-3-Clause
// Emulates a GPU on the host. Every CUDA thread runs in a fiber until it waits for other threads of its warp or block.
// A schedule (Order) chooses the next thread. A checked machine also detects accesses outside a tensor, reads of shared
// memory that was never written, and races: two accesses, at least one of them a write, without a barrier between them.
// On request it counts the work of kernels (counts.hpp).
#pragma once

#include <array>
#include <boost/context/fiber.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <source_location>
#include <stdexcept>
#include <vector>

#include "kernels/base/scalar.hpp"
#include "kernels/cuda/emulation/cells.hpp"

namespace gyr::cuda {

using Site = std::source_location;  // source line of an operation in a kernel

// Thrown when a kernel makes a mistake. The message gives the kernel, line, block and thread.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr int warp_size = 32;

enum class Order { forward, backward, random };  // order in which blocks, warps and lanes run

enum class When { early, late, any };  // time at which tasks of a stream begin, within the limits of their dependencies

class Counts;
class GridCounter;

struct Machine {
  Order order = Order::forward;
  std::uint64_t seed = 1;
  bool checked = false;
  When when = When::early;
  bool separate = false;     // true: device addresses are not valid on the host; set when the process starts, and fixed afterwards
  bool counted = false;      // true: counts the work of all kernels and prints a table when the process ends
  bool wrong = false;        // true: swaps neighbouring columns of wgmma results, to test that a wrong device is detected
  Counts* counts = nullptr;  // counter of the grids that run now, or null
  int capability = 90;       // compute capability of the device, 10 major + minor

  // The machine of this process. Its initial state comes from GYR_EMULATION, which holds words such as "backward",
  // "random=7", "late", "any", "apart", "counts", "capability=80", "wrong" and "checked".
  static Machine& instance();
};

// One-dimensional grid of blocks of threads.
struct Grid {
  Index blocks;
  int threads;           // threads per block; a multiple of warp_size
  int shared_bytes = 0;  // bytes of dynamic shared memory per block
};

enum class SyncKind {
  none,
  warp_barrier,
  shuffle,
  ballot,
  mma,
  matrices,
  block_barrier,
  named_barrier,
  group_fence,
  warpgroup_mma,
  group_commit,
  group_wait
};
enum class Touch { read, write };

class Block;
class Warpgroups;

struct Thread {
  int number = 0;
  bool done = false, waiting = false;
  SyncKind meeting = SyncKind::none;
  Site site;
  void* argument = nullptr;  // operand of the warp-wide operation that the thread waits in
  struct Copy {
    void* to;
    const void* from;
    bool zeros;
    Site site;
  };
  std::vector<Copy> copies;           // asynchronous copies that have not been waited for
  std::vector<std::size_t> groups;    // copy groups that are committed: index in `copies` where each ends
  std::vector<std::uint32_t> fences;  // for each proxy fence of this thread: number of barriers of its warp before the fence
  boost::context::fiber fiber;        // the suspended execution of the thread

  int lane() const { return number % warp_size; }
  int warp() const { return number / warp_size; }
};

// State shared by all blocks of one kernel launch.
struct Launched {
  Machine& machine;
  const char* kernel;
  Grid grid;
  std::function<void()> body;  // kernel code, run once per thread
  GridCounter* counter;        // counter of GPU work; null if nothing is counted
  std::mt19937_64 random;      // source of random schedules
  GlobalCells global;          // last accesses to global memory, recorded by a checked machine
  SharedCells shared;
};

class Block {
 public:
  Block(Launched& launched, Index number);
  ~Block();
  Block(const Block&) = delete;

  // Runs all threads of the block from start to end.
  void run();

  // Block and CUDA thread that run now on this host thread.
  static Block& current();
  static Thread& thread();

  Index number() const { return number_; }
  const Grid& grid() const { return launched_.grid; }
  char* shared() { return shared_.data(); }
  Index shared_bytes() const { return Index(shared_.size()); }
  bool checked() const { return launched_.machine.checked; }
  bool watched() const { return watched_; }  // true if accesses are checked or counted

  // Warp-wide operation: waits for all lanes of the warp. The last lane to arrive calls combine(), which reads the
  // operand of each lane by argument<T>(lane).
  template <class Combine>
  void sync_with(SyncKind what, void* argument, const Site& site, const Combine& combine) {
    if (arrive(what, argument, site)) {
      combine();
      part(what);
    } else {
      wait();
    }
  }
  template <class T>
  T& argument(int lane) {
    return *static_cast<T*>(threads_[std::size_t(thread().warp() * warp_size + lane)].argument);
  }
  void sync_all(const Site&);  // block barrier, as __syncthreads()
  // Named barrier (bar.sync, bar.arrive) of `threads` threads: the warp of this thread arrives. It waits for the others
  // if `waits`, else it continues.
  void sync_some(int number, int threads, bool waits, const Site&);
  Warpgroups& warpgroups();

  // Records an access of the current thread if accesses are checked or counted.
  void watch_shared(const void* p, int bytes, Touch, const Site&);
  void watch_global(const void* p, int bytes, Touch, const Site&);
  void count_gemms(Index n);
  // Asynchronous copy (cp.async) of 16 bytes. The bytes arrive as late as possible, and until then the target holds
  // NaN.
  void copy_async(void* to, const void* from, bool zeros, const Site&);
  void commit_copies() { thread().groups.push_back(thread().copies.size()); }
  void wait_copies(int but);
  // Proxy fence: makes the shared-memory writes of this thread visible to wgmma.
  void fence_proxies() { thread().fences.push_back(warps_[std::size_t(thread().warp())].seen[std::size_t(thread().warp())]); }
  // A wgmma of the current warp reads shared memory through the async proxy. Every writer must have executed a proxy
  // fence after its write.
  void watch_gemm(const void* p, int bytes, const Site&);
  void count_matrices(const std::array<std::uintptr_t, warp_size>& rows, const Site&);
  // Ends an epoch of the current warp: its earlier accesses are complete.
  void advance() { ++warps_[std::size_t(thread().warp())].seen[std::size_t(thread().warp())]; }
  [[noreturn]] void violation(const std::string& what, const Site&) const;

 private:
  struct Warp {
    int arrived = 0, alive = 0;
    std::uint32_t ready = 0;  // bit mask of the lanes that can run
    // for each warp v: accesses of v before its barrier number seen[v] are complete for this warp; for this warp
    // itself: its number of barriers
    std::vector<std::uint32_t> seen;
    std::uint32_t generation = 0;  // generation of the named barrier that the warp waits at
  };
  struct NamedBarrier {
    int arrived = 0, threads = 0;
    std::uint32_t generation = 0;          // number of times that the barrier completed
    std::uint32_t come = 0, waiting = 0;   // bit masks of the warps that have arrived, and of the warps that wait
    std::vector<std::uint32_t> published;  // maximum of `seen` over the warps that have arrived
  };
  bool arrive(SyncKind, void* argument, const Site&);
  void part(SyncKind);
  void wait();
  boost::context::fiber begin();
  void leave(Thread&);
  bool choose();
  boost::context::fiber successor();
  void make_runnable(const Thread&);
  void hold(const Thread&);
  void release_all();
  void arrive_at_barrier(NamedBarrier&, int number, int threads, bool waits, const Site&);
  void release(NamedBarrier&);
  bool ordered(const Access& earlier, const Access& now) const;
  Thread* next();
  [[noreturn]] void deadlock() const;
  Access access(const Site&) const;
  void check_shared_access(const void* p, Index bytes, Touch, const Site&);
  void check_global_access(const void* p, Index bytes, Touch, const Site&);
  void count_shared(const void* p, int bytes, Touch, const Site&);
  void mark_copied(const void* to, bool later);
  void load_tile(const Thread::Copy&);
  template <class Each>
  void each_shared_cell(Index first, Index bytes, const Each&);
  void check_access_order(const Cell&, Touch, const Access&, const char* memory, Index offset, const Site&) const;
  void check_order_across_blocks(Cell&, Touch, const Access&, Index offset, const Site&) const;

  Launched& launched_;
  const bool watched_;
  Index number_;
  std::vector<char> shared_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::uint32_t ready_warps_ = 0;  // bit mask of the warps with lanes that can run
  std::array<NamedBarrier, 16> some_;
  std::unique_ptr<Warpgroups> warpgroups_;
  std::uint32_t epoch_ = 0;
  int alive_ = 0, at_barrier_ = 0;
  boost::context::fiber scheduler_;
  std::exception_ptr failure_;
};

// Runs body() as every thread of the grid.
void run_grid(const char* kernel, const Grid&, std::function<void()> body);
// Number of grids run by this host thread.
Index grids_run();

}  // namespace gyr::cuda
