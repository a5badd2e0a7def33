// SPDX-License-Identifier: BSD-3-Clause
#include "src/hdf5/table_file.hpp"

#include <hdf5.h>

#include <algorithm>

#include "src/base/input_file.hpp"
#include "src/hdf5/access.hpp"
#include "src/hdf5/driver.hpp"

namespace gyr::hdf5 {

namespace {

constexpr Index most_chunk_bytes = Index(1) << 20;

Handle stored_type(Element element) {
  switch (element) {
    case Element::u8: return {H5Tcopy(H5T_STD_U8LE), H5Tclose};
    case Element::u32: return {H5Tcopy(H5T_STD_U32LE), H5Tclose};
    case Element::u64: return {H5Tcopy(H5T_STD_U64LE), H5Tclose};
    case Element::i64: return {H5Tcopy(H5T_STD_I64LE), H5Tclose};
    case Element::f32: return {H5Tcopy(H5T_IEEE_F32LE), H5Tclose};
  }
  return {};
}

Index bytes_of(Element element) {
  switch (element) {
    case Element::u8: return 1;
    case Element::u32:
    case Element::f32: return 4;
    case Element::u64:
    case Element::i64: return 8;
  }
  return 0;
}

const char* name_of(Element element) {
  switch (element) {
    case Element::u8: return "uint8";
    case Element::u32: return "uint32";
    case Element::u64: return "uint64";
    case Element::i64: return "int64";
    case Element::f32: return "float32";
  }
  return "";
}

std::vector<hsize_t> extents_of(Index rows, Index columns) {
  std::vector<hsize_t> extents{hsize_t(rows)};
  if (columns > 0) extents.push_back(hsize_t(columns));
  return extents;
}

Handle table_space(Index rows, Index columns) {
  const auto extents = extents_of(rows, columns);
  return {H5Screate_simple(int(extents.size()), extents.data(), nullptr), H5Sclose};
}

void select_rows(const Handle& space, Index first, Index count, Index columns) {
  const std::vector<hsize_t> start(columns > 0 ? 2 : 1, 0), extent = extents_of(count, columns);
  std::vector<hsize_t> begin = start;
  begin[0] = hsize_t(first);
  H5Sselect_hyperslab(space, H5S_SELECT_SET, begin.data(), nullptr, extent.data(), nullptr);
}

// Without times, equal content gives equal bytes.
Handle creation_without_times(hid_t kind) {
  Handle properties(H5Pcreate(kind), H5Pclose);
  H5Pset_obj_track_times(properties, false);
  return properties;
}

Handle created(const std::filesystem::path& path) {
  const LibraryLock lock;
  return create_for_writing(path, creation_without_times(H5P_FILE_CREATE));
}

Handle opened_file(const std::filesystem::path& path) {
  const LibraryLock lock;
  return open_for_reading(path);
}

// Properties of a table. HDF5 cannot divide a table without rows into chunks.
Handle table_properties(const TableShape& shape) {
  Handle properties = creation_without_times(H5P_DATASET_CREATE);
  H5Pset_fill_time(properties, H5D_FILL_TIME_ALLOC);  // otherwise the end of the last chunk is undefined
  if (shape.rows == 0) return properties;
  const Index row_bytes = shape.row_elements() * bytes_of(shape.element), most = std::max<Index>(1, most_chunk_bytes / row_bytes);
  const Index chunks = (shape.rows + most - 1) / most;
  const auto chunk = extents_of((shape.rows + chunks - 1) / chunks, shape.columns);
  H5Pset_chunk(properties, int(chunk.size()), chunk.data());
  H5Pset_fletcher32(properties);
  return properties;
}

}  // namespace

TableWriter::TableWriter(const std::filesystem::path& path) : Object(path.string(), created(path)) {}

void TableWriter::create(const TableShape& shape) {
  const LibraryLock lock;
  const Handle space = table_space(shape.rows, shape.columns), properties = table_properties(shape);
  const Handle table(H5Dcreate2(object_, shape.name.c_str(), stored_type(shape.element), space, H5P_DEFAULT, properties, H5P_DEFAULT), H5Dclose);
  if (table >= 0) return;
  const std::string why = reason();
  fail_write(name_ + ":" + shape.name, cause(object_, why));
}

void TableWriter::write(const TableShape& shape, Index first, Index count, const void* values) {
  if (count == 0) return;
  const LibraryLock lock;
  const Handle table(H5Dopen2(object_, shape.name.c_str(), H5P_DEFAULT), H5Dclose);
  const Handle space = table_space(shape.rows, shape.columns), memory = table_space(count, shape.columns);
  select_rows(space, first, count, shape.columns);
  const bool written = table >= 0 && H5Dwrite(table, stored_type(shape.element), memory, space, H5P_DEFAULT, values) >= 0;
  const std::string why = written ? "" : reason(), disk = failure_of(object_);
  if (!disk.empty() || !written) fail_write(name_ + ":" + shape.name, disk.empty() ? why : disk);
}

void TableWriter::close() {
  const LibraryLock lock;
  close_written(object_, name_);
}

TableReader::TableReader(const std::filesystem::path& path) : Object(path.string(), opened_file(path)), bytes_(InputFile(path).size()) {}

// A soft or external link could lead to another file.
Handle TableReader::opened(const std::string& table) const {
  H5L_info_t link;
  const bool known = H5Lexists(object_, table.c_str(), H5P_DEFAULT) > 0 && H5Lget_info(object_, table.c_str(), &link, H5P_DEFAULT) >= 0;
  require(known, Exit::data, "{}: has no dataset '{}'", name_, table);
  require(link.type == H5L_TYPE_HARD, Exit::data, "{}:{}: is a link to another place, not a dataset", name_, table);
  return owned(H5Dopen2(object_, table.c_str(), H5P_DEFAULT), H5Dclose, name_ + ":" + table);
}

Index TableReader::rows_of(const std::string& table, Element element, Index columns) const {
  const LibraryLock lock;
  const Handle dataset = opened(table);
  const std::string name = name_ + ":" + table;
  const Handle type = owned(H5Dget_type(dataset), H5Tclose, name), space = owned(H5Dget_space(dataset), H5Sclose, name);
  require(H5Tequal(type, stored_type(element)) > 0, Exit::data, "{}: its elements are not {}", name, name_of(element));
  const int dims = H5Sget_simple_extent_ndims(space), expected = columns > 0 ? 2 : 1;
  require(dims == expected, Exit::data, "{}: has {} dimensions instead of {}", name, dims, expected);
  hsize_t extents[2] = {};
  H5Sget_simple_extent_dims(space, extents, nullptr);
  require(columns == 0 || extents[1] == hsize_t(columns), Exit::data, "{}: has {} columns instead of {}", name, extents[1], columns);
  hsize_t bytes = 0;
  const bool fits =
      !__builtin_mul_overflow(extents[0], hsize_t((columns == 0 ? 1 : columns) * bytes_of(element)), &bytes) && bytes <= hsize_t(bytes_);
  require(fits, Exit::data, "{}: claims {} rows, which do not fit into the {} bytes of the file", name, extents[0], bytes_);
  const Handle properties = owned(H5Dget_create_plist(dataset), H5Pclose, name);
  const H5D_layout_t layout = H5Pget_layout(properties);
  hsize_t chunk[2] = {1, 1};
  const bool sound = layout == H5D_CONTIGUOUS ? H5Pget_external_count(properties) == 0
                                              : layout == H5D_COMPACT || (layout == H5D_CHUNKED && H5Pget_chunk(properties, 2, chunk) == expected);
  const bool small = chunk[0] <= hsize_t(bytes_) && chunk[1] <= hsize_t(bytes_) && chunk[0] * chunk[1] <= hsize_t(bytes_);
  require(sound && small, Exit::data, "{}: is stored in another file, or in chunks that exceed this one", name);
  return Index(extents[0]);
}

Index TableReader::columns(const std::string& table) const {
  const LibraryLock lock;
  const Handle dataset = opened(table);
  const Handle space = owned(H5Dget_space(dataset), H5Sclose, name_ + ":" + table);
  const int dims = H5Sget_simple_extent_ndims(space);
  require(dims == 2, Exit::data, "{}:{}: has {} dimensions instead of 2", name_, table, dims);
  hsize_t extents[2] = {};
  H5Sget_simple_extent_dims(space, extents, nullptr);
  require(extents[1] >= 1 && extents[1] <= hsize_t(bytes_), Exit::data, "{}:{}: has {} columns, and the file {} bytes", name_, table, extents[1],
          bytes_);
  return Index(extents[1]);
}

void TableReader::require_rows(const std::string& table, Element element, Index columns, Index first, Index count) const {
  const Index rows = rows_of(table, element, columns);
  require(first >= 0 && count >= 0 && first <= rows && count <= rows - first, Exit::data, "{}:{}: has {} rows, but rows {} to {} are needed", name_,
          table, rows, first, first + count);
}

void TableReader::read_rows(const std::string& table, Index columns, Index first, Index count, void* values) const {
  if (count == 0) return;
  const LibraryLock lock;
  const Handle dataset = opened(table);
  const Handle type = owned(H5Dget_type(dataset), H5Tclose, name_), space = owned(H5Dget_space(dataset), H5Sclose, name_);
  const Handle memory = table_space(count, columns);
  select_rows(space, first, count, columns);
  if (H5Dread(dataset, type, memory, space, H5P_DEFAULT, values) >= 0) return;
  const std::string why = reason(), disk = failure_of(object_);
  require(disk.empty(), Exit::io, "{}:{}: cannot be read: {}", name_, table, disk);
  fail(Exit::data, "{}:{}: rows {} to {} are damaged: {}", name_, table, first, first + count, why);
}

}  // namespace gyr::hdf5
