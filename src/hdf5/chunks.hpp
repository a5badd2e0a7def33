// SPDX-License-Identifier: BSD-3-Clause
// Direct reading and writing of the raw chunks of a dataset that has Fletcher32 checksums and no other filter. The
// checksums are computed here, because HDF5's filter pipeline takes several times the time of the transfer. HDF5 only
// locates the chunks. The caller must hold a Turn, the lock on the HDF5 library (file.hpp).
#pragma once

#include <optional>
#include <span>

#include "src/hdf5/file.hpp"

namespace gyr::hdf5 {

class Chunks {
 public:
  // nullopt if the dataset is stored in any other way.
  static std::optional<Chunks> of(Handle::Id dataset, const Shape& shape, Index element_bytes);

  // Like Dataset::read. Returns false if anything is unusual or damaged; HDF5 must then read the data or report the
  // error.
  bool read(std::span<const BoxPair> parts, void* data, const Shape& array) const;

  // Rows of [first, last) that fill complete chunks, where the last chunk may end with the dataset; {first, first} if
  // there are none.
  struct Rows {
    Index first, last;
  };
  Rows filled(Index first, Index last) const;
  // Rows past the end of the dataset in its last chunk are set to zero. Returns false if HDF5 fails.
  bool write(const Rows& filled, const void* data) const;

 private:
  Chunks(Handle::Id dataset, const Shape& shape, Shape chunk, Index element_bytes)
      : dataset_(dataset), shape_(shape), chunk_(std::move(chunk)), element_bytes_(element_bytes), bytes_(elements(chunk_) * element_bytes) {}
  bool read_chunk(const Shape& corner, std::byte* to) const;
  bool write_chunk(const Shape& corner, std::byte* from) const;

  Handle::Id dataset_;
  Shape shape_, chunk_;
  Index element_bytes_, bytes_;  // bytes of an element; bytes of a chunk without its checksum
};

}  // namespace gyr::hdf5
