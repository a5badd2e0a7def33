// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/checksum.hpp"

#include <xxhash.h>

#include <algorithm>
#include <charconv>

namespace gyr {

namespace {
constexpr Index block_bytes = Index(4) << 20;
}

Checksum::Checksum() : state_(XXH3_createState()) { XXH3_64bits_reset(state_.get()); }
void Checksum::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }
void Checksum::add(const void* bytes, Index count) { XXH3_64bits_update(state_.get(), bytes, std::size_t(count)); }
std::uint64_t Checksum::value() const { return XXH3_64bits_digest(state_.get()); }

std::uint64_t checksum(const void* bytes, Index count) { return XXH3_64bits(bytes, std::size_t(count)); }

std::string hex(std::uint64_t sum) { return fmt::format("{:016x}", sum); }

std::uint64_t sum_of_hex(const std::string& digits, const std::string& origin) {
  std::uint64_t sum = 0;
  const char* end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, sum, 16);
  require(digits.size() == 16 && error == std::errc() && rest == end && hex(sum) == digits, Exit::data,
          "{}: holds a checksum that is not 16 hexadecimal digits", origin);
  return sum;
}

std::uint64_t SummedFile::sum() const {
  const hdf5::Extent total{0, bytes()};
  return sum({&total, 1});
}

// Calls visit(bytes, offset, count) for each block of the byte range, up to the end of the file.
template <class Visit>
void SummedFile::blocks(const hdf5::Extent& part, Visit&& visit) const {
  const std::size_t size = std::size_t(std::min(block_bytes, part.bytes));
  const std::unique_ptr<char[]> block(new char[size + 1]);
  for (Index done = 0; done < part.bytes;) {
    const std::size_t n = file_.read(part.offset + done, block.get(), std::min<std::size_t>(size, std::size_t(part.bytes - done)));
    if (n == 0) return;
    visit(block.get(), part.offset + done, Index(n));
    done += Index(n);
  }
}

std::uint64_t SummedFile::sum(std::span<const hdf5::Extent> parts) const {
  Checksum sum;
  for (const hdf5::Extent& part : parts) blocks(part, [&](const char* bytes, Index, Index count) { sum.add(bytes, count); });
  return sum.value();
}

SummedFile::Sums SummedFile::sums(std::span<const std::vector<hdf5::Extent>> lists) const {
  struct Piece {
    hdf5::Extent extent;
    std::size_t list;
  };
  std::vector<Piece> pieces;
  for (std::size_t l = 0; l < lists.size(); ++l)
    for (const hdf5::Extent& extent : lists[l]) pieces.push_back({extent, l});
  const auto end = [](const Piece& p) { return p.extent.offset + p.extent.bytes; };
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.extent.offset < b.extent.offset; });
  for (std::size_t i = 1; i < pieces.size(); ++i)
    require(end(pieces[i - 1]) <= pieces[i].extent.offset, Exit::data, "{}: its datasets overlap", name_);

  Checksum total;
  std::vector<Checksum> sums(lists.size());
  auto next = pieces.begin();  // iterator: first byte range that does not end before the current block
  blocks({0, bytes()}, [&](const char* bytes, Index offset, Index count) {
    total.add(bytes, count);
    while (next != pieces.end() && end(*next) <= offset) ++next;
    for (auto piece = next; piece != pieces.end() && piece->extent.offset < offset + count; ++piece) {
      const Index from = std::max(piece->extent.offset, offset), to = std::min(end(*piece), offset + count);
      sums[piece->list].add(bytes + (from - offset), to - from);
    }
  });
  Sums values{total.value(), {}};
  for (const Checksum& sum : sums) values.lists.push_back(sum.value());
  return values;
}

}  // namespace gyr
