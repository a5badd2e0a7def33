// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/emulation/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>

#include "kernels/base/error.hpp"
#include "kernels/cuda/emulation/counts.hpp"
#include "kernels/cuda/emulation/memory.hpp"
#include "kernels/cuda/emulation/warpgroups.hpp"

namespace gyr::cuda {

namespace {

constexpr Index copied_bytes = 16;       // bytes of one asynchronous copy
constexpr std::size_t stack = 64 << 10;  // stack bytes per thread
thread_local Block* running = nullptr;
thread_local Index grids = 0;
thread_local Thread* self = nullptr;

const char* name_of(SyncKind what) {
  switch (what) {
    case SyncKind::none: return "nothing";
    case SyncKind::warp_barrier: return "a warp barrier";
    case SyncKind::shuffle: return "a shuffle";
    case SyncKind::ballot: return "a ballot";
    case SyncKind::mma: return "a tensor-core multiply-add (mma)";
    case SyncKind::matrices: return "a matrix load (ldmatrix)";
    case SyncKind::block_barrier: return "a block barrier";
    case SyncKind::named_barrier: return "a named barrier";
    case SyncKind::group_fence: return "a wgmma fence";
    case SyncKind::warpgroup_mma: return "a wgmma";
    case SyncKind::group_commit: return "a wgmma commit";
    case SyncKind::group_wait: return "a wgmma wait";
  }
  return "";
}

// Cache of fiber stacks. A grid has many threads, but only a few of them are suspended at a time.
class Stacks {
 public:
  boost::context::stack_context allocate() {
    if (free_.empty()) {
      boost::context::stack_context fresh;
      fresh.size = stack;
      fresh.sp = static_cast<char*>(std::malloc(stack)) + stack;
      return fresh;
    }
    const auto last = free_.back();
    free_.pop_back();
    return last;
  }
  void deallocate(boost::context::stack_context& s) { free_.push_back(s); }
  ~Stacks() {
    for (const auto& s : free_) std::free(static_cast<char*>(s.sp) - s.size);
  }

 private:
  std::vector<boost::context::stack_context> free_;
};
Stacks& stacks() {
  static thread_local Stacks all;
  return all;
}
struct FromStacks {
  boost::context::stack_context allocate() { return stacks().allocate(); }
  void deallocate(boost::context::stack_context& s) { stacks().deallocate(s); }
};

// Picks one of the ready warps or lanes (one bit each): for backward order the last one, else the first from `pick` on.
int picked(std::uint32_t ready, Order order, int pick) {
  const std::uint32_t at_or_after = ready & (~0u << pick);
  return order == Order::backward ? 31 - std::countl_zero(ready) : std::countr_zero(at_or_after ? at_or_after : ready);
}

Machine machine_from_environment() {
  Machine m;
  const char* const given = std::getenv("GYR_EMULATION");
  std::istringstream words(given ? given : "");
  for (std::string word; words >> word;) {
    if (word == "forward") m.order = Order::forward;
    else if (word == "backward") m.order = Order::backward;
    else if (word.starts_with("random=")) m.order = Order::random, m.seed = std::strtoull(word.c_str() + 7, nullptr, 10);
    else if (word == "checked") m.checked = true;
    else if (word == "late") m.when = When::late;
    else if (word == "any") m.when = When::any;
    else if (word == "apart") m.separate = true;
    else if (word == "counts") m.counted = true;
    else if (word == "wrong") m.wrong = true;
    else if (word.starts_with("capability=") && std::atoi(word.c_str() + 11) > 0) m.capability = std::atoi(word.c_str() + 11);
    else
      fail(Exit::usage,
           "GYR_EMULATION accepts forward, backward, random=SEED, late, any, apart, counts, capability=NUMBER, wrong and checked, not '{}'", word);
  }
  return m;
}

struct CountsOfProcess {
  Counts counts;
  explicit CountsOfProcess(Machine& machine) : counts(machine) {}
  ~CountsOfProcess() { std::fputs(counts.table().c_str(), stderr); }
};

}  // namespace

Machine& Machine::instance() {
  static Machine machine = machine_from_environment();
  static const std::unique_ptr<CountsOfProcess> counts = machine.counted ? std::make_unique<CountsOfProcess>(machine) : nullptr;
  return machine;
}

Block::Block(Launched& launched, Index number)
    : launched_(launched), watched_(launched.machine.checked || launched.counter), number_(number), shared_(std::size_t(launched.grid.shared_bytes)),
      threads_(std::size_t(launched.grid.threads)), warps_(threads_.size() / warp_size), alive_(launched.grid.threads) {
  std::fill(shared_.begin(), shared_.end(), char(0xff));  // unwritten shared memory reads as NaN in every format
  for (int i = 0; i < alive_; ++i) threads_[std::size_t(i)].number = i;
  for (Warp& w : warps_) w.alive = warp_size, w.ready = ~0u, w.seen.resize(warps_.size());
  ready_warps_ = ~0u >> (32 - warps_.size());
}
Block::~Block() = default;

Block& Block::current() { return *running; }
Thread& Block::thread() { return *self; }

void Block::violation(const std::string& what, const Site& site) const {
  const std::string_view file(site.file_name());
  throw Violation(fmt::format("{}: {} ({} line {}, block {}, thread {})", launched_.kernel, what, file.substr(file.rfind('/') + 1), site.line(),
                              number_, self->number));
}

void Block::make_runnable(const Thread& t) {
  warps_[std::size_t(t.warp())].ready |= 1u << t.lane();
  ready_warps_ |= 1u << t.warp();
}
void Block::hold(const Thread& t) {
  Warp& w = warps_[std::size_t(t.warp())];
  w.ready &= ~(1u << t.lane());
  if (w.ready == 0) ready_warps_ &= ~(1u << t.warp());
}

bool Block::arrive(SyncKind what, void* argument, const Site& site) {
  Warp& w = warps_[std::size_t(self->warp())];
  if (w.alive < warp_size) violation(fmt::format("{} in a warp from which some lanes have exited", name_of(what)), site);
  for (int lane = 0; w.arrived > 0 && lane < warp_size; ++lane) {
    const Thread& other = threads_[std::size_t(self->warp() * warp_size + lane)];
    if (!other.waiting) continue;
    if (other.meeting != what || (what != SyncKind::warp_barrier && other.site.line() != site.line()))
      violation(fmt::format("a divergent warp: this lane is in {}, but lane {} is in {} in line {}", name_of(what), lane, name_of(other.meeting),
                            other.site.line()),
                site);
    break;
  }
  self->meeting = what, self->argument = argument, self->site = site, self->waiting = true;
  hold(*self);
  return ++w.arrived == warp_size;
}

void Block::part(SyncKind what) {
  Warp& w = warps_[std::size_t(self->warp())];
  if (launched_.counter) launched_.counter->sync_with(self->warp());
  w.arrived = 0, w.ready = ~0u, ready_warps_ |= 1u << self->warp();
  if (what == SyncKind::warp_barrier) advance();
  for (int lane = 0; lane < warp_size; ++lane) threads_[std::size_t(self->warp() * warp_size + lane)].waiting = false;
}

// Chooses the next thread to run. Returns false if a thread has failed or no thread can run.
bool Block::choose() {
  Thread* const t = failure_ || alive_ == 0 ? nullptr : next();
  if (t) self = t;
  return t != nullptr;
}

// Fiber to switch to when the current thread cannot continue: the next thread, or run().
boost::context::fiber Block::successor() {
  if (!choose()) return std::move(scheduler_);
  return self->fiber ? std::move(self->fiber) : begin();
}

void Block::wait() {
  Thread& waiting = *self;
  successor().resume_with([&](boost::context::fiber&& here) {
    waiting.fiber = std::move(here);
    return boost::context::fiber();
  });
}

void Block::sync_all(const Site& site) {
  self->meeting = SyncKind::block_barrier, self->site = site, self->waiting = true;
  hold(*self);
  if (++at_barrier_ == alive_) release_all();
  else wait();
}

// Threads that have exited are not counted, as on the hardware.
void Block::release_all() {
  if (launched_.counter) launched_.counter->end_epoch();
  at_barrier_ = 0, ++epoch_;
  std::vector<std::uint32_t> all;
  for (std::size_t w = 0; w < warps_.size(); ++w) all.push_back(warps_[w].seen[w] + 1);
  for (Warp& w : warps_) w.seen = all;
  for (Thread& t : threads_)
    if (!t.done) t.waiting = false, make_runnable(t);
}

void Block::sync_some(int number, int threads, bool waits, const Site& site) {
  if (number < 1 || number >= int(some_.size()) || threads % warp_size != 0 || threads > grid().threads)
    violation(fmt::format("an invalid named barrier: number {}, {} threads", number, threads), site);
  NamedBarrier& at = some_[std::size_t(number)];
  sync_with(SyncKind::named_barrier, nullptr, site, [&] { arrive_at_barrier(at, number, threads, waits, site); });
  Warp& w = warps_[std::size_t(self->warp())];
  if (!waits || at.generation != w.generation) return;
  self->meeting = SyncKind::named_barrier, self->site = site, self->waiting = true;
  hold(*self);
  wait();
}

// Arrival at a named barrier. The accesses of the warp before it become visible to the other warps. The last warp to
// arrive releases those that wait.
void Block::arrive_at_barrier(NamedBarrier& at, int number, int threads, bool waits, const Site& site) {
  const auto me = std::size_t(self->warp());
  Warp& w = warps_[me];
  if (at.arrived > 0 && at.threads != threads)
    violation(fmt::format("barrier {} is used with {} threads and with {} threads", number, at.threads, threads), site);
  if (at.come >> me & 1) violation(fmt::format("a warp arrives at barrier {} again before all others have arrived", number), site);
  advance();
  at.published.resize(warps_.size());
  for (std::size_t v = 0; v < warps_.size(); ++v) at.published[v] = std::max(at.published[v], w.seen[v]);
  at.threads = threads, at.come |= 1u << me, w.generation = at.generation;
  if (waits) at.waiting |= 1u << me;
  at.arrived += warp_size;
  if (at.arrived == threads) release(at);
}

void Block::release(NamedBarrier& at) {
  for (std::size_t w = 0; w < warps_.size(); ++w) {
    if (!(at.waiting >> w & 1)) continue;
    for (std::size_t v = 0; v < warps_.size(); ++v) warps_[w].seen[v] = std::max(warps_[w].seen[v], at.published[v]);
    for (std::size_t t = w * warp_size; t < (w + 1) * warp_size; ++t)
      if (threads_[t].waiting && threads_[t].meeting == SyncKind::named_barrier) threads_[t].waiting = false, make_runnable(threads_[t]);
  }
  ++at.generation;
  at.arrived = 0, at.come = at.waiting = 0;
}

Warpgroups& Block::warpgroups() {
  if (!warpgroups_) warpgroups_ = std::make_unique<Warpgroups>(*this);
  return *warpgroups_;
}

// Fiber that runs the current thread. After that thread exits, it runs the next thread without a fiber, and so on.
boost::context::fiber Block::begin() {
  return boost::context::fiber(std::allocator_arg, FromStacks(), [this](boost::context::fiber&&) {
    do {
      try {
        launched_.body();
      } catch (const Violation&) {
        failure_ = std::current_exception();
      }
      leave(*self);
      if (!choose()) return std::move(scheduler_);
    } while (!self->fiber);
    return std::move(self->fiber);
  });
}

void Block::leave(Thread& t) {
  t.done = true, --warps_[std::size_t(t.warp())].alive, --alive_;
  hold(t);
  if (alive_ > 0 && at_barrier_ == alive_) release_all();
}

Thread* Block::next() {
  const Order order = launched_.machine.order;
  const auto pick = [&](std::size_t n) { return order == Order::random ? int(launched_.random() % n) : 0; };
  const int from = pick(warps_.size());
  if (ready_warps_ == 0) return nullptr;
  const int w = picked(ready_warps_, order, from);
  return &threads_[std::size_t(w * warp_size + picked(warps_[std::size_t(w)].ready, order, pick(warp_size)))];
}

void Block::run() {
  running = this;
  successor().resume_with([&](boost::context::fiber&& here) {
    scheduler_ = std::move(here);
    return boost::context::fiber();
  });
  if (failure_) std::rethrow_exception(failure_);
  if (alive_ > 0) deadlock();
  if (launched_.counter) launched_.counter->end_epoch();
}

void Block::deadlock() const {
  std::map<std::pair<unsigned, SyncKind>, int> waiting;
  for (const Thread& t : threads_)
    if (!t.done) ++waiting[{t.site.line(), t.meeting}];
  std::string text;
  for (const auto& [where, count] : waiting) text += fmt::format("; {} threads wait in {} in line {}", count, name_of(where.second), where.first);
  throw Violation(fmt::format("{}: deadlock in block {}: {} of {} threads have exited{}", launched_.kernel, number_, int(threads_.size()) - alive_,
                              threads_.size(), text));
}

Access Block::access(const Site& site) const {
  const auto warp = std::size_t(self->warp());
  return {std::int32_t(number_), std::uint16_t(self->number), std::uint16_t(site.line()), epoch_, warps_[warp].seen[warp]};
}

bool Block::ordered(const Access& earlier, const Access& now) const {
  if (earlier.block != now.block) return false;
  if (earlier.thread == now.thread || earlier.block_epoch < now.block_epoch) return true;
  return earlier.warp_epoch < warps_[std::size_t(now.thread / warp_size)].seen[std::size_t(earlier.thread / warp_size)];
}

// Compares an access with the last write and, if it is a write, also with the last read.
void Block::check_access_order(const Cell& cell, Touch touch, const Access& now, const char* memory, Index offset, const Site& site) const {
  const auto against = [&](const Access& earlier, const char* did) {
    if (earlier.made() && !ordered(earlier, now))
      violation(fmt::format("a race: this thread {} byte {} of {}, which thread {} of block {} {} in line {}, without a barrier between the two",
                            touch == Touch::read ? "reads" : "writes", offset, memory, earlier.thread, earlier.block, did, earlier.line),
                site);
  };
  against(cell.write, "writes");
  if (touch == Touch::write) against(cell.read, "reads");
}

// Check of global memory. Of the reads before the last one, only the warps that read since the last barrier of the
// block are known.
void Block::check_order_across_blocks(Cell& cell, Touch touch, const Access& now, Index offset, const Site& site) const {
  if (touch == Touch::read) {
    if (cell.read.made() && cell.read.block != now.block) cell.read_by_blocks = true;
    if (cell.read.block != now.block || cell.read.block_epoch != now.block_epoch) cell.reading_warps = 0;
    cell.reading_warps |= 1u << (now.thread / warp_size);
    cell.read = now;
    return;
  }
  const bool same_epoch = cell.read.block == now.block && cell.read.block_epoch == now.block_epoch;
  if (cell.read_by_blocks || (same_epoch && (cell.reading_warps & ~(1u << (now.thread / warp_size)))))
    violation(
        fmt::format(
            "a race: this thread writes byte {} of a tensor element, which others read, one of them in line {}, without a barrier between the two",
            offset, cell.read.line),
        site);
  cell.write = now;
  cell.read = {}, cell.reading_warps = 0, cell.read_by_blocks = false;
}

// Calls each(cell, offset) for every unit of an access.
template <class Each>
void Block::each_shared_cell(Index first, Index bytes, const Each& each) {
  for (Index at = first; at < first + bytes;) {
    CellLine& line = launched_.shared.line(at, bytes, number_);
    each(line.cells[std::size_t(at % CellLine::bytes)], at);
    at += line.unit;
  }
}

void Block::check_shared_access(const void* p, Index bytes, Touch touch, const Site& site) {
  const Index first = static_cast<const char*>(p) - shared_.data();
  if (first < 0 || first + bytes > shared_bytes())
    violation(fmt::format("an access to bytes {} to {} of shared memory, but a block has only {}", first, first + bytes, shared_bytes()), site);
  if (first % bytes != 0) violation(fmt::format("a misaligned access of {} bytes at byte {} of shared memory", bytes, first), site);
  const Access now = access(site);
  each_shared_cell(first, bytes, [&](Cell& cell, Index at) {
    if (cell.copied_later) violation(fmt::format("byte {} of shared memory is the target of a copy that was not waited for", at), site);
    if (touch == Touch::read && !cell.write.made()) violation(fmt::format("byte {} of shared memory is read but was never written", at), site);
    check_access_order(cell, touch, now, "shared memory", at, site);
    std::uint32_t* const reads = launched_.shared.last_reads(at);
    if (touch == Touch::read) {
      cell.read = now, reads[self->warp()] = now.warp_epoch + 1;
      return;
    }
    for (std::size_t w = 0; w < warps_.size(); ++w)
      if (w != std::size_t(self->warp()) && reads[w] > warps_[std::size_t(self->warp())].seen[w])
        violation(fmt::format("a race: this thread writes byte {} of shared memory, which warp {} reads, without a barrier between the two", at, w),
                  site);
    cell.write = now, cell.read = {}, cell.fences = std::uint32_t(self->fences.size());
  });
}

void Block::watch_gemm(const void* p, int bytes, const Site& site) {
  if (!checked()) return;
  check_shared_access(p, bytes, Touch::read, site);
  const Index first = static_cast<const char*>(p) - shared_.data();
  each_shared_cell(first, bytes, [&](const Cell& cell, Index at) {
    const Thread& writer = threads_[std::size_t(cell.write.thread)];
    const bool fenced = writer.fences.size() > cell.fences, ours = writer.warp() == self->warp();
    if (!fenced || (!ours && writer.fences[cell.fences] >= warps_[std::size_t(self->warp())].seen[std::size_t(writer.warp())]))
      violation(fmt::format("a wgmma reads byte {} of shared memory, but thread {}, which wrote it in line {}, has issued no proxy fence since", at,
                            cell.write.thread, cell.write.line),
                site);
  });
}
void Block::count_matrices(const std::array<std::uintptr_t, warp_size>& rows, const Site& site) {
  if (launched_.counter) launched_.counter->matrices(rows, site);
}

void Block::count_shared(const void* p, int bytes, Touch touch, const Site& site) {
  const auto at = std::uintptr_t(static_cast<const char*>(p) - shared_.data());
  if (launched_.counter) launched_.counter->access(Space::shared, touch, at, bytes, *self, site);
}
void Block::watch_shared(const void* p, int bytes, Touch touch, const Site& site) {
  count_shared(p, bytes, touch, site);
  if (checked()) check_shared_access(p, bytes, touch, site);
}
void Block::watch_global(const void* p, int bytes, Touch touch, const Site& site) {
  if (launched_.counter) launched_.counter->access(Space::global, touch, reinterpret_cast<std::uintptr_t>(p), bytes, *self, site);
  if (!checked()) return;
  check_global_access(p, bytes, touch, site);
  cuda::touch(p, std::size_t(bytes), touch);
}
void Block::count_gemms(Index n) {
  if (launched_.counter) launched_.counter->mma_instructions(n);
}

void Block::copy_async(void* to, const void* from, bool zeros, const Site& site) {
  count_shared(to, copied_bytes, Touch::write, site);
  if (checked()) {
    check_shared_access(to, copied_bytes, Touch::write, site);
    mark_copied(to, true);
  }
  std::memset(to, 0xff, copied_bytes);
  self->copies.push_back({to, from, zeros, site});
}

void Block::mark_copied(const void* to, bool later) {
  each_shared_cell(static_cast<const char*>(to) - shared_.data(), copied_bytes, [&](Cell& cell, Index) { cell.copied_later = later; });
}

void Block::load_tile(const Thread::Copy& c) {
  if (checked()) {
    mark_copied(c.to, false);
    check_shared_access(c.to, copied_bytes, Touch::write, c.site);
  }
  if (c.zeros) std::memset(c.to, 0, copied_bytes);
  else std::memcpy(c.to, c.from, copied_bytes);
}

void Block::wait_copies(int but) {
  auto& copies = self->copies;
  auto& groups = self->groups;
  if (groups.size() <= std::size_t(but)) return;
  const auto over = groups.end() - but;
  const std::size_t arrived = *(over - 1);
  for (std::size_t i = 0; i < arrived; ++i) load_tile(copies[i]);
  copies.erase(copies.begin(), copies.begin() + std::ptrdiff_t(arrived));
  groups.erase(groups.begin(), over);
  for (std::size_t& end : groups) end -= arrived;
}

void Block::check_global_access(const void* p, Index bytes, Touch touch, const Site& site) {
  const auto first = reinterpret_cast<std::uintptr_t>(p);
  if (first % std::uintptr_t(bytes) != 0) violation(fmt::format("a misaligned access of {} bytes", bytes), site);
  const Access now = access(site);
  for (auto at = first; at < first + std::uintptr_t(bytes);) {
    CellLine& line = launched_.global.line(at, bytes);
    Cell& cell = line.cells[at % CellLine::bytes];
    check_access_order(cell, touch, now, "a tensor element", Index(at - first), site);
    check_order_across_blocks(cell, touch, now, Index(at - first), site);
    at += std::uintptr_t(line.unit);
  }
}

void run_grid(const char* kernel, const Grid& grid, std::function<void()> body) {
  ++grids;
  ensure(grid.threads > 0 && grid.threads % warp_size == 0 && grid.threads <= 1024, "{}: invalid block size of {} threads", kernel, grid.threads);
  Machine& machine = Machine::instance();
  std::optional<GridCounter> counter;
  if (machine.counts) counter.emplace(*machine.counts, kernel, grid);
  Launched launched{machine,
                    kernel,
                    grid,
                    std::move(body),
                    counter ? &*counter : nullptr,
                    std::mt19937_64(machine.seed),
                    {},
                    SharedCells(machine.checked ? grid.shared_bytes : 0, grid.threads / warp_size)};
  std::vector<Index> blocks(std::size_t(grid.blocks));
  std::iota(blocks.begin(), blocks.end(), Index(0));
  if (machine.order == Order::backward) std::reverse(blocks.begin(), blocks.end());
  if (machine.order == Order::random) std::shuffle(blocks.begin(), blocks.end(), launched.random);
  for (const Index b : blocks) Block(launched, b).run();
}

Index grids_run() { return grids; }

}  // namespace gyr::cuda
