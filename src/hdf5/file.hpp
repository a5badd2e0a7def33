// SPDX-License-Identifier: BSD-3-Clause
// RAII wrappers of HDF5 files, attributes and datasets. Every failure is an Error naming file and object:
// Exit::missing, Exit::data if the content is wrong, Exit::io if disk or file system fail. The HDF5 library is not
// thread-safe; these classes serialise all calls, so any thread may use them.
#pragma once

#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/box.hpp"

namespace gyr::hdf5 {

// Lock on the HDF5 library: while one exists, no other thread calls HDF5.
class LibraryLock {
 public:
  LibraryLock() : lock_(library()) {}

 private:
  static std::recursive_mutex& library();
  std::lock_guard<std::recursive_mutex> lock_;
};

// An HDF5 identifier (hid_t) with the function that closes it.
class Handle {
 public:
  using Id = std::int64_t;
  using Close = int (*)(Id);
  Handle() = default;
  Handle(Id id, Close close) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept { swap(other); }
  Handle& operator=(Handle&& other) noexcept {
    Handle(std::move(other)).swap(*this);
    return *this;
  }
  ~Handle() {
    if (id_ < 0) return;
    const LibraryLock lock;
    close_(id_);
  }
  operator Id() const { return id_; }

 private:
  void swap(Handle& other) {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
  }
  Id id_ = -1;
  Close close_ = nullptr;
};

// HDF5 object with attributes: a file or a dataset.
class Object {
 public:
  const std::string& name() const { return name_; }  // FILE for a file, FILE:PATH for a dataset

  // Text is stored as UTF-8 of fixed length, inside HDF5's checksummed metadata.
  void set(const char* attribute, const std::string& text);
  void set(const char* attribute, std::int64_t number);
  void set(const char* attribute, std::uint64_t number);
  void set(const char* attribute, const Shape& extents);
  bool has(const char* attribute) const;
  std::string text(const char* attribute) const;
  template <class I>
  I number(const char* attribute) const;  // I: std::int64_t or std::uint64_t

 protected:
  Object(std::string name, Handle object) : name_(std::move(name)), object_(std::move(object)) {}
  Handle attribute(const char* attribute) const;
  void set(const char* attribute, Handle::Id type, const void* value, const Shape& shape = {});

  std::string name_;
  Handle object_;
};

class File;

// A byte range of a file.
struct Extent {
  Index offset, bytes;
};

// A box of a virtual dataset, and the dataset in another file of the same folder that provides all of it.
struct VirtualPart {
  Box box;
  std::string file, dataset;
};

class Dataset : public Object {
 public:
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  bool checksummed() const;  // chunked with the Fletcher32 filter, and no other filter except deflate

  // Copies the elements of `box` to the box `there`, of equal size, in the row-major `array` at `data`, in the
  // dataset's dtype.
  void read(const Box& box, void* data, const Shape& array, const Box& there) const;
  // The same for several parts, whose elements have the same order in dataset and array. Every chunk is read at most
  // once.
  void read(std::span<const BoxPair> parts, void* data, const Shape& array) const;
  void read_rows(Index first, Index count, void* data) const;
  void write_rows(Index first, Index count, const void* data);
  // Byte ranges of the dataset's chunks in the file, ascending; adjacent ranges are merged.
  std::vector<Extent> extents() const;

 private:
  friend class File;
  Dataset(std::string name, Handle dataset, Handle::Id file);
  Box rows(Index first, Index count) const;
  bool write_through_filters(Index first, Index last, const void* data);

  Handle::Id file_ = -1;
  Shape shape_;
  DType dtype_ = DType::f32;
};

class File : public Object {
 public:
  static File create(const std::filesystem::path& path);  // creates a file; truncates an existing one
  static File open(const std::filesystem::path& path);    // opens a file for reading

  // Creates a dataset in equal chunks of at most about 2 MiB along its first dimensions, each with a checksum.
  // `deflate`: compression level 1 to 9, 0: none. Missing groups are created.
  Dataset create_dataset(const std::string& path, DType type, const Shape& shape, int deflate = 0);
  // Creates a virtual dataset, a view of datasets in other files. Elements that no part provides, or whose file is
  // missing, read as NaN. HDF5 resolves relative file names in this file's folder.
  Dataset create_virtual(const std::string& path, DType type, const Shape& shape, const std::vector<VirtualPart>& parts);
  Dataset dataset(const std::string& path) const;
  // Adds a second name of the root group: /NAME/PATH is /PATH. It is a soft link, which neither datasets() nor h5py's
  // visitors follow.
  void name_root(const std::string& name);
  // Paths of all datasets, sorted. Soft and external links are not followed.
  std::vector<std::string> datasets() const;
  // Flushes and closes the file. Exit::io if any write has failed.
  void close();
  Index bytes_read() const;  // dataset bytes read from disk so far, in full chunks

 private:
  Dataset create(const std::string& path, DType type, const Shape& shape, const Handle& properties);
  File(std::string name, Handle file) : Object(std::move(name), std::move(file)) {}
};

// Version of the HDF5 library, such as "1.10.8".
std::string library_version();

// Rows of the first dimension in one chunk of a dataset.
Index chunk_rows(DType type, const Shape& shape);

}  // namespace gyr::hdf5
