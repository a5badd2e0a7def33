// SPDX-License-Identifier: BSD-3-Clause
// HDF5 files of tables: named datasets of one or two dimensions, stored row after row with a checksum for each chunk.
// Equal tables give equal bytes, because the files contain no times. Every failure is an Error, as in file.hpp.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "src/hdf5/file.hpp"

namespace gyr::hdf5 {

enum class Element { u8, u32, u64, i64, f32 };

template <class T>
constexpr Element element_of() {
  if constexpr (std::is_same_v<T, std::uint8_t>) return Element::u8;
  else if constexpr (std::is_same_v<T, std::uint32_t>) return Element::u32;
  else if constexpr (std::is_same_v<T, std::uint64_t>) return Element::u64;
  else if constexpr (std::is_same_v<T, std::int64_t>) return Element::i64;
  else {
    static_assert(std::is_same_v<T, float>);
    return Element::f32;
  }
}

// Name and shape of a table. columns = 0: it has one dimension.
struct TableShape {
  std::string name;
  Element element;
  Index rows, columns = 0;

  Index row_elements() const { return columns == 0 ? 1 : columns; }
};

class TableWriter : public Object {
 public:
  explicit TableWriter(const std::filesystem::path& path);  // creates the file; truncates an existing one

  // Adds a complete table. `columns` as in TableShape.
  template <class T>
  void add(const std::string& name, Index columns, std::span<const T> values) {
    const TableShape shape{name, element_of<T>(), Index(values.size()) / (columns == 0 ? 1 : columns), columns};
    create(shape);
    write(shape, 0, shape.rows, values.data());
  }
  // Adds a table whose rows are written in parts. Rows that are never written are zero.
  void create(const TableShape&);
  template <class T>
  void write_rows(const TableShape& shape, Index first, std::span<const T> values) {
    write(shape, first, Index(values.size()) / shape.row_elements(), values.data());
  }
  void close();  // flushes and closes the file; Exit::io if any write has failed

 private:
  void write(const TableShape&, Index first, Index count, const void* values);
};

class TableReader : public Object {
 public:
  explicit TableReader(const std::filesystem::path& path);

  // Number of rows of a table. Exit::data unless it is inside this file, has this element type and this number of
  // columns, and needs at most as many bytes as the file has.
  template <class T>
  Index rows(const std::string& table, Index columns) const {
    return rows_of(table, element_of<T>(), columns);
  }
  // Columns of a table of two dimensions. Exit::data for another one.
  Index columns(const std::string& table) const;
  // Rows [first, first + count), in row-major order. Exit::data also if they do not exist or are damaged.
  template <class T>
  std::vector<T> read(const std::string& table, Index columns, Index first, Index count) const {
    require_rows(table, element_of<T>(), columns, first, count);
    std::vector<T> values(std::size_t(count * (columns == 0 ? 1 : columns)));
    read_rows(table, columns, first, count, values.data());
    return values;
  }
  template <class T>
  std::vector<T> read(const std::string& table, Index columns = 0) const {
    return read<T>(table, columns, 0, rows<T>(table, columns));
  }

 private:
  Handle opened(const std::string& table) const;
  Index rows_of(const std::string& table, Element, Index columns) const;
  void require_rows(const std::string& table, Element, Index columns, Index first, Index count) const;
  void read_rows(const std::string& table, Index columns, Index first, Index count, void* values) const;

  Index bytes_;  // size of the file
};

}  // namespace gyr::hdf5
