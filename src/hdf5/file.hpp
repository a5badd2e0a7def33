// SPDX-License-Identifier: BSD-3-Clause
// Files of HDF5, their attributes and datasets, owned by what holds them. Every failure is an Error naming file and object: Exit::missing,
// Exit::data where the content is wrong, Exit::io where disk or file system fail. The library serves one thread at a time; everything
// here waits for its turn, so that any thread may call it.
#pragma once

#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/box.hpp"

namespace gyr::hdf5 {

// While one lives, no other thread is inside HDF5.
class Turn {
 public:
  Turn() : lock_(library()) {}

 private:
  static std::recursive_mutex& library();
  std::lock_guard<std::recursive_mutex> lock_;
};

// An identifier of HDF5 (hid_t) with the function that gives it back.
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
    const Turn turn;
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

// What carries attributes.
class Object {
 public:
  const std::string& name() const { return name_; }  // FILE for a file, FILE:PATH for a dataset

  // Text is UTF-8 of fixed length, which lies inside HDF5's checksummed metadata.
  void set(const char* attribute, const std::string& text);
  void set(const char* attribute, std::int64_t number);
  void set(const char* attribute, std::uint64_t number);
  void set(const char* attribute, const Shape& numbers);
  bool has(const char* attribute) const;
  std::string text(const char* attribute) const;
  template <class I>
  I number(const char* attribute) const;  // std::int64_t or std::uint64_t

 protected:
  Object(std::string name, Handle object) : name_(std::move(name)), object_(std::move(object)) {}
  Handle attribute(const char* attribute) const;
  void set(const char* attribute, Handle::Id type, const void* value, const Shape& shape = {});

  std::string name_;
  Handle object_;
};

class File;

// Bytes of a file.
struct Extent {
  Index offset, bytes;
};

// A box of a virtual dataset is the whole of a dataset of another file in the same folder.
struct VirtualPart {
  Box box;
  std::string file, dataset;
};

class Dataset : public Object {
 public:
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  bool checksummed() const;  // chunked under Fletcher's sum and no other filter but deflate

  // The elements of `box` become those of the equally large `there` in the row-major `array` at `data`, in the dataset's dtype.
  void read(const Box& box, void* data, const Shape& array, const Box& there) const;
  // The same for several parts, whose elements have the same order in dataset and array. No chunk is read twice.
  void read(std::span<const BoxPair> parts, void* data, const Shape& array) const;
  void read_rows(Index first, Index count, void* data) const;
  void write_rows(Index first, Index count, const void* data);
  // Where the numbers lie in the file, in rising order, neighbours as one.
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
  static File create(const std::filesystem::path& path);  // empties what is there
  static File open(const std::filesystem::path& path);    // to read

  // A dataset in equal chunks of at most about 2 MiB along its first dimensions, each with its checksum, and compressed where `deflate` (1 to 9) says
  // so; groups on the way are made.
  Dataset create_dataset(const std::string& path, DType type, const Shape& shape, int deflate = 0);
  // A dataset made of others, with not-a-number where none is or its file is missing. HDF5 looks for relative names beside this file.
  Dataset create_virtual(const std::string& path, DType type, const Shape& shape, const std::vector<VirtualPart>& parts);
  Dataset dataset(const std::string& path) const;
  // A second name of the root: /NAME/PATH is /PATH. A soft link, which neither datasets() nor h5py's visitors follow.
  void name_root(const std::string& name);
  // Paths of all datasets, sorted; links that lead elsewhere are not followed.
  std::vector<std::string> datasets() const;
  // Writes out everything and closes; Exit::io where any write has failed.
  void close();
  Index bytes_read() const;  // of datasets from the disk so far, in whole chunks

 private:
  Dataset create(const std::string& path, DType type, const Shape& shape, const Handle& properties);
  File(std::string name, Handle file) : Object(std::move(name), std::move(file)) {}
};

// Of the library, as in "1.10.8".
std::string library_version();

// Rows of the first dimension that one chunk of a dataset holds.
Index chunk_rows(DType type, const Shape& shape);

}  // namespace gyr::hdf5
