// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/memory_plan.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace gyr {

namespace {

bool meet(const Block& a, const Block& b) { return a.first < b.last && b.first < a.last; }

constexpr Index nowhere = -1;

class Planner {
 public:
  explicit Planner(std::vector<Block> blocks) : blocks_(std::move(blocks)), conflicts_(blocks_.size()) {
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      for (std::size_t j = 0; j < blocks_.size(); ++j)
        if (i != j && blocks_[i].bytes > 0 && blocks_[j].bytes > 0 && meet(blocks_[i], blocks_[j])) conflicts_[i].push_back(j);
  }

  // Of the blocks in this order, each at the lowest offset that the ones before leave free.
  // Returns what they take.
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

  // Places again and again, each time the block that sticks out earlier than before.
  void improve(Index live, Index rounds) {
    std::vector<std::size_t> order = best_order_;
    for (Index round = 0; round < rounds && best_ > live; ++round) {
      const Index top = place_in(order);
      const auto highest = std::find_if(order.begin(), order.end(), [&](std::size_t i) { return offsets_[i] + blocks_[i].bytes == top; });
      const Index back = 1 + round * 7 % std::max<Index>(1, highest - order.begin());
      std::rotate(highest - std::min<Index>(back, highest - order.begin()), highest, highest + 1);
    }
  }

  // Every order of placement, as far as it may still be better than what is known.
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

  std::vector<Block> blocks_;
  std::vector<std::vector<std::size_t>> conflicts_;
  std::vector<Index> offsets_, best_offsets_;
  std::vector<std::size_t> best_order_;
  std::vector<std::pair<Index, Index>> taken_;
  Index best_ = 0, live_ = 0, left_ = 0;
  bool complete_ = false;
};

Index most_alive(const std::vector<Block>& blocks) {
  std::vector<std::pair<Index, Index>> changes;  // event, bytes: those that go before those that come
  for (const Block& b : blocks)
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

}  // namespace

MemoryPlan plan_memory(std::span<const Block> given, Index alignment, Index nodes) {
  std::vector<Block> blocks(given.begin(), given.end());
  for (Block& b : blocks) b.bytes = (b.bytes + alignment - 1) / alignment * alignment;
  MemoryPlan plan;
  plan.live = most_alive(blocks);
  Planner planner(blocks);
  const auto size = [&](std::size_t i) { return double(blocks[i].bytes); };
  const auto lifetime = [&](std::size_t i) { return double(blocks[i].last - blocks[i].first); };
  planner.place_in(in_order(blocks.size(), size));
  planner.place_in(in_order(blocks.size(), lifetime));
  planner.place_in(in_order(blocks.size(), [&](std::size_t i) { return size(i) * lifetime(i); }));
  planner.place_in(in_order(blocks.size(), [&](std::size_t i) { return -double(blocks[i].first); }));
  if (planner.bytes() > plan.live) planner.improve(plan.live, std::max<Index>(1, nodes / std::max<Index>(1, Index(blocks.size()))));
  if (planner.bytes() > plan.live) planner.search(plan.live, nodes);
  plan.offsets = planner.offsets(), plan.bytes = planner.bytes();
  plan.optimal = plan.bytes == plan.live || planner.complete();
  return plan;
}

}  // namespace gyr
