// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/device/memory_plan.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <utility>

namespace gyr {

namespace {

bool overlap(const MemoryBlock& a, const MemoryBlock& b) { return a.first < b.last && b.first < a.last; }

constexpr Index nowhere = -1;
constexpr std::size_t most_searched = 4000;  // largest number of blocks for the search, because each pair is compared

class Planner {
 public:
  explicit Planner(std::vector<MemoryBlock> blocks) : blocks_(std::move(blocks)), conflicts_(blocks_.size()) {
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      for (std::size_t j = 0; j < blocks_.size(); ++j)
        if (i != j && blocks_[i].bytes > 0 && blocks_[j].bytes > 0 && overlap(blocks_[i], blocks_[j])) conflicts_[i].push_back(j);
  }

  // Places the blocks in this order, each at the lowest offset that the blocks before it leave free. Returns the total
  // size.
  Index place_in(const std::vector<std::size_t>& order) {
    offsets_.assign(blocks_.size(), nowhere);
    Index top = 0;
    for (const std::size_t i : order) {
      offsets_[i] = lowest(i);
      top = std::max(top, offsets_[i] + blocks_[i].bytes);
    }
    if (keep(top)) best_order_ = order;
    return top;
  }

  // Repeats the placement; each time, the block with the highest end moves to an earlier place in the order.
  void improve(Index live, Index rounds) {
    std::vector<std::size_t> order = best_order_;
    for (Index round = 0; round < rounds && best_ > live; ++round) {
      const Index top = place_in(order);
      const auto highest = std::find_if(order.begin(), order.end(), [&](std::size_t i) { return offsets_[i] + blocks_[i].bytes == top; });
      const Index back = 1 + round * 7 % std::max<Index>(1, highest - order.begin());
      std::rotate(highest - std::min<Index>(back, highest - order.begin()), highest, highest + 1);
    }
  }

  // Branch and bound over all placement orders, for at most `nodes` steps.
  void search(Index live, Index nodes) {
    left_ = nodes, live_ = live;
    offsets_.assign(blocks_.size(), nowhere);
    complete_ = true;
    descend(0, 0);
  }

  const std::vector<Index>& offsets() const { return best_offsets_; }
  Index bytes() const { return best_; }
  bool complete() const { return complete_; }

 private:
  Index lowest(std::size_t i) {
    taken_.clear();
    for (const std::size_t j : conflicts_[i])
      if (offsets_[j] != nowhere) taken_.push_back({offsets_[j], offsets_[j] + blocks_[j].bytes});
    std::sort(taken_.begin(), taken_.end());
    Index at = 0;
    for (const auto& [begin, end] : taken_) {
      if (begin - at >= blocks_[i].bytes) break;
      at = std::max(at, end);
    }
    return at;
  }

  bool keep(Index top) {
    if (!best_offsets_.empty() && top >= best_) return false;
    best_ = top, best_offsets_ = offsets_;
    return true;
  }

  void descend(std::size_t placed, Index top) {
    if (placed == blocks_.size()) {
      keep(top);
      return;
    }
    for (std::size_t i = 0; i < blocks_.size() && best_ > live_; ++i) {
      if (offsets_[i] != nowhere) continue;
      if (--left_ < 0) {
        complete_ = false;
        return;
      }
      const Index at = lowest(i), higher = std::max(top, at + blocks_[i].bytes);
      if (higher >= best_) continue;
      offsets_[i] = at;
      descend(placed + 1, higher);
      offsets_[i] = nowhere;
    }
  }

  std::vector<MemoryBlock> blocks_;
  std::vector<std::vector<std::size_t>> conflicts_;
  std::vector<Index> offsets_, best_offsets_;
  std::vector<std::size_t> best_order_;
  std::vector<std::pair<Index, Index>> taken_;
  Index best_ = 0, live_ = 0, left_ = 0;
  bool complete_ = false;
};

Index most_alive(const std::vector<MemoryBlock>& blocks) {
  std::vector<std::pair<Index, Index>> changes;  // event and change in bytes; sorted, an event frees blocks before it allocates others
  for (const MemoryBlock& b : blocks)
    if (b.first < b.last) changes.push_back({b.first, b.bytes}), changes.push_back({b.last, -b.bytes});
  std::sort(changes.begin(), changes.end());
  Index now = 0, most = 0;
  for (const auto& [event, bytes] : changes) most = std::max(most, now += bytes);
  return most;
}

std::vector<std::size_t> in_order(std::size_t count, const std::function<double(std::size_t)>& weight) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weight(a) > weight(b); });
  return order;
}

// Placement orders: by start, by size, by lifetime, and by size times lifetime.
std::vector<std::vector<std::size_t>> orders_of(const std::vector<MemoryBlock>& blocks) {
  const auto size = [&](std::size_t i) { return double(blocks[i].bytes); };
  const auto lifetime = [&](std::size_t i) { return double(blocks[i].last - blocks[i].first); };
  return {in_order(blocks.size(), [&](std::size_t i) { return -double(blocks[i].first); }), in_order(blocks.size(), size),
          in_order(blocks.size(), lifetime), in_order(blocks.size(), [&](std::size_t i) { return size(i) * lifetime(i); })};
}

// First fit: places each block, in order of start, at the lowest offset that is free at that time.
std::vector<Index> first_fit(const std::vector<MemoryBlock>& blocks) {
  std::vector<Index> offsets(blocks.size());
  std::map<Index, Index> gaps{{0, std::numeric_limits<Index>::max()}};  // free gaps: end offset by begin offset
  const auto give_back = [&](Index from, Index to) {
    if (from == to) return;
    auto next = gaps.lower_bound(from);
    if (next != gaps.end() && next->first == to) to = next->second, next = gaps.erase(next);
    if (next != gaps.begin() && std::prev(next)->second == from) std::prev(next)->second = to;
    else gaps.emplace(from, to);
  };
  using End = std::pair<Index, std::size_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> alive;
  for (const std::size_t i : in_order(blocks.size(), [&](std::size_t b) { return -double(blocks[b].first); })) {
    for (; !alive.empty() && alive.top().first <= blocks[i].first; alive.pop()) {
      const std::size_t over = alive.top().second;
      give_back(offsets[over], offsets[over] + blocks[over].bytes);
    }
    auto gap = gaps.begin();
    while (gap->second - gap->first < blocks[i].bytes) ++gap;
    const auto [from, to] = *gap;
    offsets[i] = from;
    if (blocks[i].bytes == 0 || blocks[i].first >= blocks[i].last) continue;
    gaps.erase(gap);
    if (from + blocks[i].bytes < to) gaps.emplace(from + blocks[i].bytes, to);
    alive.push({blocks[i].last, i});
  }
  return offsets;
}

Index end_of(const std::vector<MemoryBlock>& blocks, const std::vector<Index>& offsets) {
  Index end = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) end = std::max(end, offsets[i] + blocks[i].bytes);
  return end;
}

// Highest end offset of the blocks that are alive, at each event; 0 if there are none.
std::vector<Index> tops(const std::vector<MemoryBlock>& blocks, const std::vector<Index>& offsets, Index times) {
  std::vector<Index> tops(times, 0);
  std::priority_queue<std::pair<Index, Index>> alive;  // blocks that are alive: end offset, last event
  const auto order = in_order(blocks.size(), [&](std::size_t b) { return -double(blocks[b].first); });
  auto next = order.begin();
  for (Index t = 0; t < times; ++t) {
    for (; next != order.end() && blocks[*next].first <= t; ++next) alive.push({offsets[*next] + blocks[*next].bytes, blocks[*next].last});
    while (!alive.empty() && alive.top().second <= t) alive.pop();
    if (!alive.empty()) tops[t] = alive.top().first;
  }
  return tops;
}

// Places short-lived blocks, in order of start, above lasting blocks with known tops. Each block is placed as high as
// possible below `ceiling`, or as low as possible above it if there is no room. A stack that grows down from the
// ceiling and one that grows up from it leave no gap.
std::vector<Index> hang(const std::vector<MemoryBlock>& blocks, const std::vector<Index>& tops, Index ceiling) {
  std::vector<Index> offsets(blocks.size());
  std::map<Index, std::pair<Index, Index>> alive;  // blocks that are alive, by begin offset: end offset, last event
  for (const std::size_t i : in_order(blocks.size(), [&](std::size_t b) { return -double(blocks[b].first); })) {
    const MemoryBlock& block = blocks[i];
    std::erase_if(alive, [&](const auto& piece) { return piece.second.second <= block.first; });
    Index floor = 0;
    for (Index t = block.first; t < block.last; ++t) floor = std::max(floor, tops[t]);
    Index high = ceiling, low = ceiling;
    auto below = alive.lower_bound(ceiling);
    for (auto above = below; above != alive.end() && above->first - low < block.bytes; ++above) low = above->second.first;
    while (below != alive.begin() && high - std::prev(below)->second.first < block.bytes) high = (--below)->first;
    offsets[i] = high - block.bytes >= floor ? high - block.bytes : low;
    if (block.bytes > 0) alive[offsets[i]] = {offsets[i] + block.bytes, block.last};
  }
  return offsets;
}

}  // namespace

MemoryPlan plan_memory(std::span<const MemoryBlock> given, Index alignment, Index nodes) {
  std::vector<MemoryBlock> blocks(given.begin(), given.end());
  for (MemoryBlock& b : blocks) b.bytes = (b.bytes + alignment - 1) / alignment * alignment;
  MemoryPlan plan;
  plan.live = most_alive(blocks);
  plan.offsets = first_fit(blocks), plan.bytes = end_of(blocks, plan.offsets);
  plan.optimal = plan.bytes == plan.live;
  if (plan.optimal || blocks.size() > most_searched) return plan;
  Planner planner(blocks);
  for (const auto& order : orders_of(blocks))
    if (planner.place_in(order) == plan.live) break;
  if (planner.bytes() > plan.live) planner.improve(plan.live, std::max<Index>(1, nodes / std::max<Index>(1, Index(blocks.size()))));
  if (planner.bytes() > plan.live) planner.search(plan.live, nodes);
  plan.offsets = planner.offsets(), plan.bytes = planner.bytes();
  plan.optimal = plan.bytes == plan.live || planner.complete();
  return plan;
}

SlotPlan plan_slot(std::span<const SlotBlock> given, bool exclusive, Index alignment) {
  std::vector<MemoryBlock> all, lasting, passing;
  std::vector<std::size_t> which;  // index of each block in its list (lasting or passing)
  for (MemoryBlock b : given) {
    b.bytes = (b.bytes + alignment - 1) / alignment * alignment;
    all.push_back(b);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto& list = given[i].lasting ? lasting : passing;
    which.push_back(list.size());
    list.push_back(all[i]);
  }
  const Index live = most_alive(all);
  const MemoryPlan lower = plan_memory(lasting, alignment, 1000);
  Index times = 0;
  for (const MemoryBlock& b : all) times = std::max(times, b.last);
  SlotPlan plan;
  plan.slot = exclusive ? std::max(live, lower.bytes) : lower.bytes;
  const std::vector<Index> upper = hang(passing, tops(lasting, lower.offsets, times), plan.slot);
  plan.shared = std::max(plan.slot, end_of(passing, upper)) - plan.slot;
  if (exclusive) plan.slot += std::exchange(plan.shared, 0);
  // With a single slot (memory of one micro-batch), lasting blocks may be placed above the others, so plan all blocks
  // together.
  if (exclusive && plan.slot > live) {
    MemoryPlan full_plan = plan_memory(all, alignment, 1000);
    if (full_plan.bytes < plan.slot) return {std::move(full_plan.offsets), full_plan.bytes, 0};
  }
  for (std::size_t i = 0; i < all.size(); ++i) plan.offsets.push_back(given[i].lasting ? lower.offsets[which[i]] : upper[which[i]]);
  return plan;
}

}  // namespace gyr
