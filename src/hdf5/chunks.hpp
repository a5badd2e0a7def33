// SPDX-License-Identifier: BSD-3-Clause
// The chunks of a dataset under Fletcher's sum and no other filter, brought to the file and back as they lie there: the sums are taken
// here and HDF5, whose own way costs several times the bytes' own time, only says where. Whoever calls has the Turn.
#pragma once

#include <optional>
#include <span>

#include "src/hdf5/file.hpp"

namespace gyr::hdf5 {

class Chunks {
 public:
  // None where the dataset is stored in any other way.
  static std::optional<Chunks> of(Handle::Id dataset, const Shape& shape, Index element_bytes);

  // Dataset::read; false where anything at all is not plain and right, which HDF5 then has to read or to refuse.
  bool read(std::span<const BoxPair> parts, void* data, const Shape& array) const;

  // Of the rows from `first` up to `last` those that fill chunks to the end of the dataset or their own; {first, first} where none do.
  struct Rows {
    Index first, last;
  };
  Rows filled(Index first, Index last) const;
  // All that is behind the end of the dataset in its last chunk is zero. False as HDF5 fails.
  bool write(const Rows& filled, const void* data) const;

 private:
  Chunks(Handle::Id dataset, const Shape& shape, Shape chunk, Index element_bytes)
      : dataset_(dataset), shape_(shape), chunk_(std::move(chunk)), element_bytes_(element_bytes), bytes_(elements(chunk_) * element_bytes) {}
  bool read_chunk(const Shape& corner, std::byte* to) const;
  bool write_chunk(const Shape& corner, std::byte* from) const;

  Handle::Id dataset_;
  Shape shape_, chunk_;
  Index element_bytes_, bytes_;  // of a chunk, without its sum
};

}  // namespace gyr::hdf5
