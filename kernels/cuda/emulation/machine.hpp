// SPDX-License-Identifier: BSD-3-Clause
// The host in the part of a GPU. Every CUDA thread runs in a fiber until it meets others of its warp or block; a schedule says who
// goes on. A checked machine also judges what threads touch: it finds accesses outside a tensor, reads of shared memory that nobody has written, and
// two accesses, one of them a write, that no barrier orders. It counts what kernels do where it is asked to (counts.hpp).
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

using Site = std::source_location;  // of an operation in a kernel

// A kernel did what none may do. The message names kernel, line, block and thread.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr int warp_size = 32;

enum class Order { forward, backward, random };  // of blocks, warps and lanes

enum class When { early, late, any };  // tasks of streams begin, as far as what they wait for lets them

class Counts;
class GridCounter;

struct Machine {
  Order order = Order::forward;
  std::uint64_t seed = 1;
  bool checked = false;
  When when = When::early;
  bool apart = false;        // the device has addresses of its own; as the process begins, and so it stays
  bool counted = false;      // all of the process, which prints a table as it ends
  bool wrong = false;        // neighbouring columns of what warpgroups multiply change places
  Counts* counts = nullptr;  // of the grids that run now
  int capability = 90;       // of the device, 10 major + minor

  // Of this process. GYR_EMULATION, words such as "backward", "random=7", "late", "any", "apart", "counts", "capability=80", "wrong" and "checked",
  // says how it begins.
  static Machine& instance();
};

// A grid of blocks of threads, in one dimension.
struct Grid {
  Index blocks;
  int threads;           // a multiple of warp_size
  int shared_bytes = 0;  // of a block
};

enum class SyncKind {
  none,
  warp_barrier,
  shuffle,
  ballot,
  product,
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
  void* argument = nullptr;  // of the meeting
  struct Copy {
    void* to;
    const void* from;
    bool zeros;
    Site site;
  };
  std::vector<Copy> copies;           // that have not been waited for
  std::vector<std::size_t> groups;    // of these: where each ends that is closed
  std::vector<std::uint32_t> fences;  // between ways to shared memory: barriers of its warp before each
  boost::context::fiber fiber;        // where it waits

  int lane() const { return number % warp_size; }
  int warp() const { return number / warp_size; }
};

// What all blocks of one kernel share.
struct Launched {
  Machine& machine;
  const char* kernel;
  Grid grid;
  std::function<void()> body;  // of a thread
  GridCounter* counter;        // or null
  std::mt19937_64 random;      // for schedules
  GlobalCells global;          // where the machine is checked
  SharedCells shared;
};

class Block {
 public:
  Block(Launched& launched, Index number);
  ~Block();
  Block(const Block&) = delete;

  // All threads from beginning to end.
  void run();

  // Those that run now: on the thread of the host that runs a block.
  static Block& current();
  static Thread& thread();

  Index number() const { return number_; }
  const Grid& grid() const { return launched_.grid; }
  char* shared() { return shared_.data(); }
  Index shared_bytes() const { return Index(shared_.size()); }
  bool checked() const { return launched_.machine.checked; }
  bool watched() const { return watched_; }  // whether accesses are judged or counted

  // All lanes of the warp meet; the last one calls combine(), which finds what each brought by argument<T>(lane).
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
  void sync_all(const Site&);  // the block's barrier
  // Barrier `number`, of so many threads: this one's warp has come to it, and waits for the others or goes on.
  void sync_some(int number, int threads, bool waits, const Site&);
  Warpgroups& warpgroups();

  // An access of the current thread, where it is watched.
  void watch_shared(const void* p, int bytes, Touch, const Site&);
  void watch_global(const void* p, int bytes, Touch, const Site&);
  void count_gemms(Index n);
  // Copies beside the thread: their bytes arrive as late as they may, and until then their target holds NaN.
  void copy_async(void* to, const void* from, bool zeros, const Site&);
  void commit_copies() { thread().groups.push_back(thread().copies.size()); }
  void wait_copies(int but);
  // What this thread has written is there for products of warpgroups.
  void fence_proxies() { thread().fences.push_back(warps_[std::size_t(thread().warp())].seen[std::size_t(thread().warp())]); }
  // Such a product reads, for the current warp: by ways of its own, which a fence must lie before.
  void watch_gemm(const void* p, int bytes, const Site&);
  void count_matrices(const std::array<std::uintptr_t, warp_size>& rows, const Site&);
  // What the current warp did is over.
  void advance() { ++warps_[std::size_t(thread().warp())].seen[std::size_t(thread().warp())]; }
  [[noreturn]] void violation(const std::string& what, const Site&) const;

 private:
  struct Warp {
    int arrived = 0, alive = 0;
    std::uint32_t ready = 0;          // lanes that may go on
    std::vector<std::uint32_t> seen;  // of each warp: accesses behind fewer of its barriers are over for this one; of its own, those there were
    std::uint32_t turn = 0;           // of the barrier of some warps that it waits at
  };
  struct NamedBarrier {
    int arrived = 0, threads = 0;
    std::uint32_t turn = 0;                // how often all were there
    std::uint32_t come = 0, waiting = 0;   // warps
    std::vector<std::uint32_t> published;  // what those that came had seen
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
  std::uint32_t ready_warps_ = 0;  // those with lanes that may go on
  std::array<NamedBarrier, 16> some_;
  std::unique_ptr<Warpgroups> warpgroups_;
  std::uint32_t epoch_ = 0;
  int alive_ = 0, at_barrier_ = 0;
  boost::context::fiber scheduler_;
  std::exception_ptr failure_;
};

// Runs body() as every thread of the grid.
void run_grid(const char* kernel, const Grid&, std::function<void()> body);
// How often that was.
Index grids_run();

}  // namespace gyr::cuda
