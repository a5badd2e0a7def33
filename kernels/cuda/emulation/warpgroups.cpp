// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/cuda/emulation/warpgroups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace gyr::cuda {

namespace {

constexpr Index chunk_bytes = 16;
constexpr int warp_rows = 16, depth = 16;                   // rows of a warp, and depth (k), of one wgmma
constexpr std::uint32_t pending_accumulator = 0xffffffffu;  // NaN that marks accumulators of an unfinished wgmma

Index swizzled(Index at) { return at ^ (at >> 7 & 7) << 4; }

// Element i of a chunk of eight bf16 values.
float number(const char* chunk, int i) {
  std::uint16_t bits;
  std::memcpy(&bits, chunk + 2 * i, sizeof bits);
  return std::bit_cast<float>(std::uint32_t(bits) << 16);
}

}  // namespace

DescribedMatrix::DescribedMatrix(std::uint64_t bits)
    : start(Index(bits & 0x3fff) << 4), leading(Index(bits >> 16 & 0x3fff) << 4), stride(Index(bits >> 32 & 0x3fff) << 4), base(int(bits >> 49 & 7)),
      swizzle(int(bits >> 62)) {}

Index chunk_by_rows(const DescribedMatrix& m, int i, int h) { return swizzled(m.start + i / 8 * m.stride + i % 8 * 128 + h * chunk_bytes); }
Index chunk_by_columns(const DescribedMatrix& m, int i, int k) {
  return swizzled(m.start + i / 8 * m.leading + i % 8 * chunk_bytes + k / 8 * m.stride + k % 8 * 128);
}

Warpgroups::Warpgroups(Block& block)
    : block_(block), warps_(std::size_t(block.grid().threads / warp_size)), issued_((warps_.size() + group_warps - 1) / group_warps),
      fenced_(std::size_t(block.grid().threads)) {}

Warpgroups::Warp& Warpgroups::mine() { return warps_[std::size_t(Block::thread().warp())]; }

void Warpgroups::fence(const void* registers, std::size_t bytes) {
  const char* const at = static_cast<const char*>(registers);
  fenced_[std::size_t(Block::thread().number)][at].assign(at, at + bytes);
}

// Checks that all warps of a warpgroup issue the same wgmmas, with valid descriptors.
void Warpgroups::agree(const Wgmma& p) {
  const auto warp = std::size_t(Block::thread().warp());
  if (warp / group_warps * group_warps + group_warps > warps_.size()) block_.violation("a wgmma in a warpgroup of fewer than four warps", p.site);
  const GroupOperands& first = p.lanes[0];
  for (const GroupOperands& lane : p.lanes)
    if (lane.columns != first.columns || lane.adds != first.adds || lane.a_matrix != first.a_matrix || lane.b_matrix != first.b_matrix)
      block_.violation("the lanes of a warp issue different wgmmas", p.site);
  for (const std::uint64_t bits : {first.a ? first.b_matrix : first.a_matrix, first.b_matrix}) {
    const DescribedMatrix m(bits);
    if (m.swizzle != 1 || m.base != 0) block_.violation("a matrix descriptor without 128-byte swizzle, or with a base offset other than 0", p.site);
    if (m.start >> 7 & 7) block_.violation("a matrix descriptor that does not start at the first row of a swizzle pattern", p.site);
  }
  const Issued issued{unsigned(p.site.line()), first.columns, first.a_matrix, first.b_matrix};
  auto& all = issued_[warp / group_warps];
  const std::size_t wgmma_index = mine().issued++;
  if (wgmma_index == all.size()) all.push_back(issued);
  else if (all[wgmma_index] != issued) block_.violation("the warps of a warpgroup issue different wgmmas", p.site);
}

// Takes over the accumulators of wgmmas in flight, and copies the register operands. Other registers must not have
// changed since the last fence.
void Warpgroups::increase_registers(Warp& warp, Wgmma& p) {
  const auto first = std::size_t(Block::thread().warp() * warp_size);
  const auto is_fenced = [&](std::size_t lane, const void* registers, std::size_t bytes) {
    const char* const at = static_cast<const char*>(registers);
    const auto& all = fenced_[first + lane];
    auto range = all.upper_bound(at);
    if (range == all.begin()) return false;
    --range;
    const auto skipped = std::size_t(at - range->first);
    return skipped + bytes <= range->second.size() && std::memcmp(range->second.data() + skipped, at, bytes) == 0;
  };
  const auto [at, fresh] = warp.sums.try_emplace(p.lanes[0].d);
  Sum& sum = at->second;
  const auto count = std::size_t(p.lanes[0].columns / 2);
  if (!fresh && sum.values.size() != warp_size * count) block_.violation("wgmmas of different shapes accumulate in the same registers", p.site);
  for (std::size_t l = 0; l < warp_size; ++l) {
    const GroupOperands& lane = p.lanes[l];
    if (fresh) {
      if (!is_fenced(l, lane.d, count * sizeof(float)))
        block_.violation("a wgmma accumulates in registers that the last fence did not cover, or that have changed since the last fence", p.site);
      sum.values.insert(sum.values.end(), lane.d, lane.d + count);
      for (std::size_t i = 0; i < count; ++i) lane.d[i] = std::bit_cast<float>(pending_accumulator);
    }
    if (!lane.a) continue;
    if (!is_fenced(l, lane.a, sizeof p.a[l])) block_.violation("a wgmma reads registers that have changed since the last fence", p.site);
    std::memcpy(p.a[l].data(), lane.a, sizeof p.a[l]);
  }
  ++sum.wgmmas;
}

// Offsets of the chunks of a, if it is in shared memory, followed by those of b.
std::vector<Index> Warpgroups::chunks(const Wgmma& p) const {
  const GroupOperands& of = p.lanes[0];
  const int first_row = Block::thread().warp() % group_warps * warp_rows;
  std::vector<Index> at;
  if (!of.a)
    for (int i = 0; i < warp_rows; ++i)
      for (int h = 0; h < depth / 8; ++h) at.push_back(chunk_by_rows(DescribedMatrix(of.a_matrix), first_row + i, h));
  const DescribedMatrix b(of.b_matrix);
  if (of.b_by_columns)
    for (int k = 0; k < depth; ++k)
      for (int i = 0; i < of.columns / 8; ++i) at.push_back(chunk_by_columns(b, i, k));
  else
    for (int i = 0; i < of.columns; ++i)
      for (int h = 0; h < depth / 8; ++h) at.push_back(chunk_by_rows(b, i, h));
  return at;
}

std::vector<char> Warpgroups::read(const Wgmma& p) {
  std::vector<char> bytes;
  for (const Index at : chunks(p)) {
    if (at + chunk_bytes > block_.shared_bytes()) block_.violation("a wgmma reads beyond the end of shared memory", p.site);
    const char* const from = block_.shared() + at;
    block_.watch_gemm(from, chunk_bytes, p.site);
    bytes.insert(bytes.end(), from, from + chunk_bytes);
  }
  return bytes;
}

// Counts shared-memory reads. A warpgroup reads b once. Eight rows at a distance of 128 bytes form a matrix, and four
// matrices are one access.
void Warpgroups::count(const Wgmma& p) {
  const GroupOperands& of = p.lanes[0];
  block_.count_gemms(of.columns / 8);
  std::vector<Index> rows;
  const auto add = [&](const auto& chunk_of_row) {
    for (int i = 0; i < 8; ++i) rows.push_back(chunk_of_row(i));
  };
  const int warp = Block::thread().warp() % group_warps;
  const DescribedMatrix a(of.a_matrix), b(of.b_matrix);
  for (int h = 0; !of.a && h < 4; ++h) add([&](int i) { return chunk_by_rows(a, warp * warp_rows + h / 2 * 8 + i, h % 2); });
  for (int h = 0; warp == 0 && h < of.columns / 4; ++h)
    add([&](int i) { return of.b_by_columns ? chunk_by_columns(b, h / 2, h % 2 * 8 + i) : chunk_by_rows(b, h / 2 * 8 + i, h % 2); });
  for (std::size_t first = 0; first < rows.size(); first += warp_size) {
    std::array<std::uintptr_t, warp_size> of_four;
    std::copy_n(rows.begin() + std::ptrdiff_t(first), warp_size, of_four.begin());
    block_.count_matrices(of_four, p.site);
  }
}

void Warpgroups::enqueue(const Site& site) {
  Warp& warp = mine();
  Wgmma p{site, {}, {}, {}};
  for (int l = 0; l < warp_size; ++l) p.lanes[std::size_t(l)] = block_.argument<GroupOperands>(l);
  agree(p);
  increase_registers(warp, p);
  if (block_.watched()) count(p);
  if (block_.checked()) p.read = read(p);
  warp.groups.back().push_back(std::move(p));
}

void Warpgroups::commit() { mine().groups.emplace_back(); }

void Warpgroups::wait(int but, const Site&) {
  Warp& warp = mine();
  for (; warp.groups.size() > std::size_t(but) + 1; warp.groups.erase(warp.groups.begin()))
    for (const Wgmma& p : warp.groups.front()) complete(warp, p);
  block_.advance();
}

void Warpgroups::complete(Warp& warp, const Wgmma& p) {
  const GroupOperands& of = p.lanes[0];
  const auto lanes = std::size_t(warp_size), columns = std::size_t(of.columns);
  const std::vector<char> bytes = read(p);
  if (block_.checked() && bytes != p.read) block_.violation("shared memory that a wgmma reads was written before the wgmma was waited for", p.site);
  float a[warp_rows][depth];
  const char* from = bytes.data();
  for (std::size_t l = 0; of.a && l < lanes; ++l) {
    if (std::memcmp(p.lanes[l].a, p.a[l].data(), sizeof p.a[l]) != 0)
      block_.violation("registers that a wgmma reads were written before it was waited for", p.site);
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t h = 0; h < 2; ++h) a[l / 4 + 8 * (i % 2)][8 * (i / 2) + 2 * (l % 4) + h] = std::bit_cast<float>(p.a[l][i] >> 16 * h << 16);
  }
  for (int i = 0; !of.a && i < warp_rows; ++i)
    for (int k = 0; k < depth; ++k) a[i][k] = number(from + (i * (depth / 8) + k / 8) * chunk_bytes, k % 8);
  if (!of.a) from += warp_rows * depth / 8 * chunk_bytes;
  std::vector<float> b(depth * columns);
  for (std::size_t k = 0; k < depth; ++k)
    for (std::size_t c = 0; c < columns; ++c)
      b[k * columns + c] = of.b_by_columns ? number(from + (k * (columns / 8) + c / 8) * chunk_bytes, int(c % 8))
                                           : number(from + (c * (depth / 8) + k / 8) * chunk_bytes, int(k % 8));
  std::vector<float> result(warp_rows * columns, 0.0f);
  for (std::size_t r = 0; r < warp_rows; ++r)
    for (std::size_t k = 0; k < depth; ++k)
      for (std::size_t c = 0; c < columns; ++c) result[r * columns + c] += a[r][k] * b[k * columns + c];
  Sum& sum = warp.sums.at(of.d);
  const std::size_t wrong = Machine::instance().wrong;
  for (std::size_t l = 0; l < lanes; ++l)
    for (std::size_t i = 0; i < columns / 2; ++i) {
      float& d = sum.values[l * (columns / 2) + i];
      d = (of.adds ? d : 0) + result[(l / 4 + 8 * (i / 2 % 2)) * columns + 8 * (i / 4) + 2 * (l % 4) + (i + wrong) % 2];
    }
  if (--sum.wgmmas == 0) finish(warp, p);
}

// After the last wgmma of a sum: writes the results to the accumulator registers.
void Warpgroups::finish(Warp& warp, const Wgmma& p) {
  const Sum& sum = warp.sums.at(p.lanes[0].d);
  const auto count = std::size_t(p.lanes[0].columns / 2);
  for (std::size_t l = 0; l < warp_size; ++l)
    for (std::size_t i = 0; i < count; ++i) {
      float& d = p.lanes[l].d[i];
      if (std::bit_cast<std::uint32_t>(d) != pending_accumulator)
        block_.violation("registers that a wgmma accumulates in were written before it was waited for", p.site);
      d = sum.values[l * count + i];
    }
  warp.sums.erase(p.lanes[0].d);
}

}  // namespace gyr::cuda
