// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/emulation/counts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace gyr::cuda {

namespace {

constexpr int banks = 32, word = 4, sector = 32, line_bytes = 64;
constexpr int most_bytes = 128;  // maximum bytes of one shared-memory transaction

std::size_t place_of(int bytes) { return std::size_t(std::countr_zero(unsigned(bytes))); }

// Transactions of the lanes of a warp that are served together.
SharedAccesses transactions_of(const std::vector<std::uintptr_t>& addresses, int bytes) {
  std::vector<std::uintptr_t> words;
  for (const std::uintptr_t a : addresses)
    for (std::uintptr_t w = a / word; w * word < a + std::uintptr_t(bytes); ++w) words.push_back(w);
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  std::array<Index, banks> in_bank = {};
  for (const std::uintptr_t w : words) ++in_bank[w % banks];
  const Index needed = Index(words.size()) * word;
  return {0, *std::max_element(in_bank.begin(), in_bank.end()), (needed + most_bytes - 1) / most_bytes};
}

// Calls f(address) for each lane of a request.
template <class F>
void each_lane(std::uint32_t lanes, const std::array<std::uintptr_t, warp_size>& address, const F& f) {
  for (int l = 0; l < warp_size; ++l)
    if (lanes >> l & 1) f(address[std::size_t(l)]);
}

SharedAccesses shared_request(std::uint32_t lanes, const std::array<std::uintptr_t, warp_size>& address, int bytes) {
  const int lanes_per_pass = bytes <= word ? warp_size : warp_size * word / bytes;
  SharedAccesses all{1};
  for (int first = 0; first < warp_size; first += lanes_per_pass) {
    const std::uint32_t part = lanes_per_pass == warp_size ? lanes : lanes & ((1u << lanes_per_pass) - 1) << first;
    std::vector<std::uintptr_t> addresses;
    each_lane(part, address, [&](std::uintptr_t a) { addresses.push_back(a); });
    if (!addresses.empty()) all.add(transactions_of(addresses, bytes));
  }
  return all;
}

Index sectors_of(std::uint32_t lanes, const std::array<std::uintptr_t, warp_size>& address) {
  std::vector<std::uintptr_t> met;
  each_lane(lanes, address, [&](std::uintptr_t a) { met.push_back(a / sector); });
  std::sort(met.begin(), met.end());
  return std::unique(met.begin(), met.end()) - met.begin();
}

}  // namespace

void SharedAccesses::add(const SharedAccesses& more) { requests += more.requests, transactions += more.transactions, least += more.least; }

const GlobalAccesses::OfSize& GlobalAccesses::of_bytes(int n) const { return by_size[place_of(n)]; }
GlobalAccesses::OfSize GlobalAccesses::all() const {
  OfSize sum;
  for (const OfSize& n : by_size) sum.instructions += n.instructions, sum.requests += n.requests, sum.sectors += n.sectors;
  return sum;
}
void GlobalAccesses::add(const GlobalAccesses& more) {
  bytes += more.bytes, distinct += more.distinct;
  for (std::size_t i = 0; i < by_size.size(); ++i) {
    OfSize& n = by_size[i];
    n.instructions += more.by_size[i].instructions, n.requests += more.by_size[i].requests, n.sectors += more.by_size[i].sectors;
  }
}

SharedAccesses GridCounts::all_shared() const {
  SharedAccesses all;
  for (const auto& [line, accesses] : shared) all.add(accesses);
  return all;
}
void GridCounts::add(const GridCounts& more) {
  grids += more.grids, mma_instructions += more.mma_instructions;
  grid.shared_bytes = std::max(grid.shared_bytes, more.grid.shared_bytes);
  loaded.add(more.loaded), stored.add(more.stored);
  for (const auto& [line, accesses] : more.shared) shared[line].add(accesses);
}
std::string GridCounts::conflicts() const {
  std::string text;
  for (const auto& [at, n] : shared)
    if (n.conflicts() > 0)
      text += fmt::format("  {} line {}: {} requests, {} transactions, {} needed\n", at.file, at.line, n.requests, n.transactions, n.least);
  return text;
}

GridCounts Counts::all() const {
  GridCounts sum;
  sum.grids = 0;
  for (const GridCounts& g : grids_) sum.add(g);
  return sum;
}

std::string Counts::table() const {
  std::map<std::string, GridCounts> kernels;
  for (const GridCounts& g : grids_)
    if (const auto [at, fresh] = kernels.try_emplace(g.kernel, g); !fresh) at->second.add(g);
  constexpr const char* line = "{:<26}{:>7}{:>12}{:>14}{:>14}{:>14}{:>14}{:>14}{:>12}{:>10}{:>8}\n";
  std::string text =
      fmt::format(line, "kernel", "grids", "products", "loaded", "in sectors", "distinct", "stored", "in sectors", "shared", "conflicts", "bytes");
  for (const auto& [name, g] : kernels) {
    const SharedAccesses shared = g.all_shared();
    text += fmt::format(line, name, g.grids, g.mma_instructions, g.loaded.bytes, sector * g.loaded.all().sectors, g.loaded.distinct, g.stored.bytes,
                        sector * g.stored.all().sectors, shared.transactions, shared.conflicts(), g.grid.shared_bytes);
  }
  return text;
}

GridCounter::GridCounter(Counts& to, const char* kernel, const Grid& grid) : to_(to), warps_(std::size_t(grid.threads / warp_size)) {
  counts_.kernel = kernel, counts_.grid = grid;
}

GridCounter::~GridCounter() {
  for (const auto& [at, line] : lines_) counts_.loaded.distinct += std::popcount(line.read), counts_.stored.distinct += std::popcount(line.written);
  to_.grids_.push_back(std::move(counts_));
}

void GridCounter::access(Space space, Touch touch, std::uintptr_t address, int bytes, const Thread& thread, const Site& site) {
  Passes& passes = warps_[std::size_t(thread.warp())][{site.file_name(), site.line(), site.column(), space, touch, bytes}];
  const auto lane = std::size_t(thread.lane()), pass = std::size_t(passes.made[lane]++);
  if (pass == passes.requests.size()) passes.requests.emplace_back();
  Request& request = passes.requests[pass];
  request.lanes |= 1u << lane, request.address[lane] = address;
  if (space == Space::shared) return;
  GlobalAccesses& all = global(touch);
  all.bytes += bytes, ++all.by_size[place_of(bytes)].instructions;
  Line& line = lines_[address / line_bytes];
  const std::uint64_t here = ((std::uint64_t(1) << bytes) - 1) << address % line_bytes;
  (touch == Touch::read ? line.read : line.written) |= here;
}

void GridCounter::matrices(const std::array<std::uintptr_t, warp_size>& rows, const Site& site) {
  finish({site.file_name(), site.line(), site.column(), Space::shared, Touch::read, 16}, {~0u, rows});
}

void GridCounter::sync_with(int warp) {
  Warp& w = warps_[std::size_t(warp)];
  for (const auto& [instruction, passes] : w)
    for (const Request& request : passes.requests) finish(instruction, request);
  w.clear();
}

void GridCounter::end_epoch() {
  for (std::size_t w = 0; w < warps_.size(); ++w) sync_with(int(w));
}

void GridCounter::finish(const Instruction& at, const Request& request) {
  if (at.space == Space::global) {
    GlobalAccesses::OfSize& all = global(at.touch).by_size[place_of(at.bytes)];
    ++all.requests, all.sectors += sectors_of(request.lanes, request.address);
    return;
  }
  const std::string_view file(at.file);
  counts_.shared[{std::string(file.substr(file.rfind('/') + 1)), at.line}].add(shared_request(request.lanes, request.address, at.bytes));
}

}  // namespace gyr::cuda
