// SPDX-License-Identifier: BSD-3-Clause
// A media store, PREFIX.media.h5: the prepared pictures of all samples, as HDF5 tables (README.md lists them). Equal
// pictures give equal bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "src/hdf5/table_file.hpp"
#include "src/media/processor/geometry.hpp"

namespace gyr::media {

inline constexpr std::int64_t store_version = 1;
inline constexpr Index item_columns = 6, image_columns = 6, sequence_columns = 3;

// Tables of consecutive lines of the input. Offsets count from the begin of these tables.
struct StoreRows {
  std::vector<std::uint8_t> bytes, names;
  std::vector<std::int64_t> items, images, sequences;  // rows of item_columns, image_columns, sequence_columns
  std::vector<std::int64_t> skipped_lines;
  std::string reasons;  // one line of text for each skipped line

  void begin_sequence(std::int64_t line);
  void add_image(const std::string& name, const PreparedImage&);
  void write(hdf5::TableWriter&) const;
  // Exit::data if the tables contradict each other.
  static StoreRows read(const hdf5::TableReader&);
};

struct StoreCounts {
  std::int64_t sequences = 0, images = 0, items = 0, bytes = 0, names = 0;  // rows of each table
  std::int64_t skipped = 0, most_items = 0;                                 // skipped lines; items of the longest sequence

  void add(const StoreRows&);
};

// Writes the tables of all blocks one after the other. `block(b)` returns block b of `blocks`.
void write_store(hdf5::TableWriter&, const Processor&, const StoreCounts&, std::int64_t blocks, const std::function<StoreRows(std::int64_t)>& block);

}  // namespace gyr::media
