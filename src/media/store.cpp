// SPDX-License-Identifier: BSD-3-Clause
#include "src/media/store.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "src/checkpoint/checksum.hpp"

namespace gyr::media {

namespace {

std::int64_t rows_in(const std::vector<std::int64_t>& table, Index columns) { return std::int64_t(table.size()) / columns; }

std::uint64_t hash_of(const std::string& text) { return checksum(text.data(), Index(text.size())); }

void add_to_column(std::vector<std::int64_t>& table, Index columns, Index column, std::int64_t offset) {
  for (std::size_t i = std::size_t(column); i < table.size(); i += std::size_t(columns)) table[i] += offset;
}

// True if the rows are consecutive ranges {begin, count} that cover [0, total).
bool covers(const std::vector<std::int64_t>& table, Index columns, Index begin, std::int64_t total) {
  std::int64_t next = 0;
  for (std::size_t i = std::size_t(begin); i < table.size(); i += std::size_t(columns)) {
    if (table[i] != next || table[i + 1] < 0 || table[i + 1] > total - next) return false;
    next += table[i + 1];
  }
  return next == total;
}

}  // namespace

void StoreRows::begin_sequence(std::int64_t line) { sequences.insert(sequences.end(), {line, rows_in(images, image_columns), 0}); }

void StoreRows::add_image(const std::string& name, const PreparedImage& image) {
  ++sequences.back();
  images.insert(images.end(), {rows_in(items, item_columns), std::int64_t(image.items.size()), image.tile_rows, image.tile_columns,
                               std::int64_t(names.size()), std::int64_t(name.size())});
  names.insert(names.end(), name.begin(), name.end());
  for (const Image& item : image.items) {
    items.insert(items.end(),
                 {std::int64_t(bytes.size()), std::int64_t(item.rgb.size()), item.height, item.width, image.grid_height, image.grid_width});
    bytes.insert(bytes.end(), item.rgb.begin(), item.rgb.end());
  }
}

void StoreRows::write(hdf5::TableWriter& file) const {
  file.add<std::uint8_t>("bytes", 0, bytes), file.add<std::uint8_t>("names", 0, names);
  file.add<std::int64_t>("item", item_columns, items), file.add<std::int64_t>("image", image_columns, images);
  file.add<std::int64_t>("sequence", sequence_columns, sequences);
  file.add<std::int64_t>("skipped_lines", 0, skipped_lines);
  file.add<std::uint8_t>("reasons", 0, {reinterpret_cast<const std::uint8_t*>(reasons.data()), reasons.size()});
}

StoreRows StoreRows::read(const hdf5::TableReader& file) {
  StoreRows rows;
  rows.bytes = file.read<std::uint8_t>("bytes"), rows.names = file.read<std::uint8_t>("names");
  rows.items = file.read<std::int64_t>("item", item_columns), rows.images = file.read<std::int64_t>("image", image_columns);
  rows.sequences = file.read<std::int64_t>("sequence", sequence_columns);
  rows.skipped_lines = file.read<std::int64_t>("skipped_lines");
  const auto reasons = file.read<std::uint8_t>("reasons");
  rows.reasons.assign(reasons.begin(), reasons.end());
  const bool sound = covers(rows.items, item_columns, 0, std::int64_t(rows.bytes.size())) &&
                     covers(rows.images, image_columns, 0, rows_in(rows.items, item_columns)) &&
                     covers(rows.images, image_columns, 4, std::int64_t(rows.names.size())) &&
                     covers(rows.sequences, sequence_columns, 1, rows_in(rows.images, image_columns)) &&
                     std::count(rows.reasons.begin(), rows.reasons.end(), '\n') == std::ptrdiff_t(rows.skipped_lines.size());
  require(sound, Exit::data, "{}: its tables contradict each other; remove the file and run the command again", file.name());
  return rows;
}

void StoreCounts::add(const StoreRows& rows) {
  sequences += rows_in(rows.sequences, sequence_columns), images += rows_in(rows.images, image_columns);
  items += rows_in(rows.items, item_columns), bytes += std::int64_t(rows.bytes.size()), names += std::int64_t(rows.names.size());
  skipped += std::int64_t(rows.skipped_lines.size());
  for (std::size_t s = 0; s < rows.sequences.size(); s += sequence_columns) {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < rows.sequences[s + 2]; ++i) count += rows.images[std::size_t((rows.sequences[s + 1] + i) * image_columns + 1)];
    most_items = std::max(most_items, count);
  }
}

void write_store(hdf5::TableWriter& file, const Processor& processor, const StoreCounts& counts, std::int64_t blocks,
                 const std::function<StoreRows(std::int64_t)>& block) {
  using hdf5::Element;
  const std::string settings = processor.json();
  file.set("format_version", store_version), file.set("processor", settings), file.set("processor_hash", hex(hash_of(settings)));
  file.set("most_items", counts.most_items), file.set("skipped_lines", counts.skipped);
  const hdf5::TableShape bytes{"bytes", Element::u8, counts.bytes}, names{"names", Element::u8, counts.names};
  const hdf5::TableShape item{"item", Element::i64, counts.items, item_columns}, image{"image", Element::i64, counts.images, image_columns};
  const hdf5::TableShape sequence{"sequence", Element::i64, counts.sequences, sequence_columns};
  for (const hdf5::TableShape& shape : {bytes, names, item, image, sequence}) file.create(shape);
  StoreCounts done;
  for (std::int64_t b = 0; b < blocks; ++b) {
    StoreRows rows = block(b);
    StoreCounts next = done;
    next.add(rows);
    add_to_column(rows.items, item_columns, 0, done.bytes);
    add_to_column(rows.images, image_columns, 0, done.items), add_to_column(rows.images, image_columns, 4, done.names);
    add_to_column(rows.sequences, sequence_columns, 1, done.images);
    file.write_rows<std::uint8_t>(bytes, done.bytes, rows.bytes), file.write_rows<std::uint8_t>(names, done.names, rows.names);
    file.write_rows<std::int64_t>(item, done.items, rows.items), file.write_rows<std::int64_t>(image, done.images, rows.images);
    file.write_rows<std::int64_t>(sequence, done.sequences, rows.sequences);
    done = next;
  }
}

}  // namespace gyr::media
