// SPDX-License-Identifier: BSD-3-Clause
#include "src/hdf5/chunks.hpp"

#include <hdf5.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

#include "src/hdf5/fletcher32.hpp"

namespace gyr::hdf5 {

namespace {

constexpr Index sum_bytes = 4;

// Checksums are stored in little endian on every machine.
std::uint32_t stored_sum(const std::byte* at) {
  std::uint32_t sum = 0;
  for (int i = 0; i < 4; ++i) sum |= std::to_integer<std::uint32_t>(at[i]) << 8 * i;
  return sum;
}
void store_sum(std::uint32_t sum, std::byte* at) {
  for (int i = 0; i < 4; ++i) at[i] = std::byte(sum >> 8 * i);
}

std::unique_ptr<std::byte[]> buffer_of(Index bytes) {
  return std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[std::size_t(bytes)]);  // nothrow, because the size comes from an untrusted file
}

std::vector<hsize_t> place(const Shape& corner) { return {corner.begin(), corner.end()}; }

// H5Dread_chunk of HDF5 2.0 takes the size of the buffer as an additional argument.
template <class Call>
herr_t read_stored(Call* call, hid_t dataset, const hsize_t* corner, std::uint32_t* skipped, void* to, std::size_t buffer) {
  if constexpr (std::is_invocable_v<Call*, hid_t, hid_t, const hsize_t*, std::uint32_t*, void*>)
    return call(dataset, H5P_DEFAULT, corner, skipped, to);
  else return call(dataset, H5P_DEFAULT, corner, skipped, to, &buffer);
}

// Bounding box of the parts' source boxes.
Box around(std::span<const BoxPair> parts) {
  Box all = parts[0].from;
  for (const BoxPair& part : parts)
    for (std::size_t d = 0; d < all.first.size(); ++d) {
      const Index last = std::max(all.first[d] + all.count[d], part.from.first[d] + part.from.count[d]);
      all.first[d] = std::min(all.first[d], part.from.first[d]);
      all.count[d] = last - all.first[d];
    }
  return all;
}

// Calls visit(corner) for each chunk that intersects the box, in ascending order. Stops and returns false once visit
// does.
template <class Visit>
bool for_each_chunk(const Box& box, const Shape& chunk, Visit&& visit) {
  const std::size_t dims = chunk.size();
  Shape start(dims), corner;
  for (std::size_t d = 0; d < dims; ++d) start[d] = box.first[d] / chunk[d] * chunk[d];
  for (corner = start;;) {
    if (!visit(corner)) return false;
    std::size_t d = dims;
    for (; d > 0; --d) {
      if ((corner[d - 1] += chunk[d - 1]) < box.first[d - 1] + box.count[d - 1]) break;
      corner[d - 1] = start[d - 1];
    }
    if (d == 0) return true;
  }
}

}  // namespace

std::optional<Chunks> Chunks::of(Handle::Id dataset, const Shape& shape, Index element_bytes) {
  const Handle plist(H5Dget_create_plist(dataset), H5Pclose);
  if (plist < 0 || H5Pget_layout(plist) != H5D_CHUNKED || H5Pget_nfilters(plist) != 1) return {};
  unsigned flags = 0, config = 0;
  std::size_t values = 0;
  if (H5Pget_filter2(plist, 0, &flags, &values, nullptr, 0, nullptr, &config) != H5Z_FILTER_FLETCHER32) return {};
  std::vector<hsize_t> extents(shape.size());
  if (H5Pget_chunk(plist, int(extents.size()), extents.data()) != int(shape.size())) return {};
  if (std::find(extents.begin(), extents.end(), hsize_t(0)) != extents.end()) return {};
  return Chunks(dataset, shape, Shape(extents.begin(), extents.end()), element_bytes);
}

// The chunk's size in the file comes from its index. It is checked against the buffer before anything is read.
bool Chunks::read_chunk(const Shape& corner, std::byte* to) const {
  const auto at = place(corner);
  const Index size = bytes_ + sum_bytes;
  hsize_t stored = 0;
  std::uint32_t skipped = 0;  // bit mask of the filters that HDF5 skipped for this chunk
  return H5Dget_chunk_storage_size(dataset_, at.data(), &stored) >= 0 && stored == hsize_t(size) &&
         read_stored(H5Dread_chunk, dataset_, at.data(), &skipped, to, std::size_t(size)) >= 0 && skipped == 0 &&
         stored_sum(to + bytes_) == fletcher32(to, std::size_t(bytes_));
}

bool Chunks::read(std::span<const BoxPair> parts, void* data, const Shape& array) const {
  for (const BoxPair& part : parts)
    if (!fits_within(part.from, shape_) || !fits_within(part.to, array) || part.from.count != part.to.count || elements(part.from.count) == 0)
      return false;
  const auto buffer = buffer_of(bytes_ + sum_bytes);
  if (!buffer || parts.empty()) return false;
  auto* to = static_cast<std::byte*>(data);
  const auto copy = [&](const Shape& corner, const BoxPair& part, const Box& both) {
    const Box here = moved(both, corner, Shape(corner.size(), 0)), there = moved(both, part.from.first, part.to.first);
    box_runs(chunk_, here, array, there, [&](Index from, Index at, Index count) {
      std::memcpy(to + at * element_bytes_, buffer.get() + from * element_bytes_, std::size_t(count * element_bytes_));
    });
  };
  return for_each_chunk(around(parts), chunk_, [&](const Shape& corner) {
    bool is_read = false;
    for (const BoxPair& part : parts) {
      const auto both = common(part.from, {corner, chunk_});
      if (!both) continue;
      if (!is_read && !read_chunk(corner, buffer.get())) return false;
      is_read = true;
      copy(corner, part, *both);
    }
    return true;
  });
}

Chunks::Rows Chunks::filled(Index first, Index last) const {
  const Rows none{first, first};
  if (first < 0 || first > last || last > shape_[0] || !std::equal(chunk_.begin() + 1, chunk_.end(), shape_.begin() + 1)) return none;
  const Index rows = chunk_[0];
  const Index from = (first + rows - 1) / rows * rows, to = last == shape_[0] ? last : last / rows * rows;
  return from < to ? Rows{from, to} : none;
}

bool Chunks::write_chunk(const Shape& corner, std::byte* from) const {
  store_sum(fletcher32(from, std::size_t(bytes_)), from + bytes_);
  return H5Dwrite_chunk(dataset_, H5P_DEFAULT, 0, place(corner).data(), std::size_t(bytes_ + sum_bytes), from) >= 0;
}

bool Chunks::write(const Rows& filled, const void* data) const {
  const Index rows = chunk_[0], row_bytes = bytes_ / rows;
  const auto* from = static_cast<const std::byte*>(data);
  const std::unique_ptr<std::byte[]> buffer(new std::byte[std::size_t(bytes_ + sum_bytes)]);
  Shape corner(shape_.size(), 0);
  for (corner[0] = filled.first; corner[0] < filled.last; corner[0] += rows) {
    const Index bytes = std::min(rows, filled.last - corner[0]) * row_bytes;
    std::memcpy(buffer.get(), from, std::size_t(bytes));
    std::memset(buffer.get() + bytes, 0, std::size_t(bytes_ - bytes));
    if (!write_chunk(corner, buffer.get())) return false;
    from += bytes;
  }
  return true;
}

}  // namespace gyr::hdf5
