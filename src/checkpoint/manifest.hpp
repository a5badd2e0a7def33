// SPDX-License-Identifier: BSD-3-Clause
// What a checkpoint consists of: which file holds which boxes of which tensor, under which checksums. It is the truth for loading: a
// checkpoint is whole when every file is as its manifest says. manifest.json carries the checksum of its own text.
#pragma once

#include <optional>

#include "kernels/base/box.hpp"
#include "src/checkpoint/header.hpp"

namespace gyr {

// A tensor as its readers know it, whole.
struct StoredTensor {
  std::string path;  // in HDF5: /model/layers/0/mamba/D
  std::string hf_name, long_name;
  DType dtype;
  Shape shape;
  std::string meaning;  // what its numbers are, where they were widened to be stored, as half_meaning; otherwise the name of their type
};
inline constexpr const char* half_meaning = "float16";
StoredTensor stored_tensor(Content, const std::string& weight_name, DType, const Shape&);

// A box of a tensor in a file.
struct StoredBox {
  std::size_t tensor;  // number in the manifest's list
  std::string dataset;
  Box box;
  std::uint64_t values_checksum = 0;  // of its numbers, row-major: taken in memory while it was written
  std::vector<hdf5::Extent> extents;  // where in the file it is stored ...
  std::uint64_t stored_sum = 0;       // ... and of the bytes there
};

struct ManifestFile {
  std::string name;  // beside the manifest
  Index bytes = 0;
  std::uint64_t sum = 0;
  std::vector<StoredBox> boxes;
  std::string root = {};  // a name of the file's root that no other file has; empty in those of older programs
};

struct Manifest {
  CheckpointHeader header;
  std::vector<StoredTensor> tensors;
  std::vector<ManifestFile> files;
  std::optional<ManifestFile> index;  // shows every tensor whole; nothing is loaded through it

  Index bytes() const;  // of all tensors
};

inline constexpr const char *manifest_name = "manifest.json", *index_name = "index.h5";

std::string text_of(const ManifestFile&);                                        // JSON, to travel between ranks
ManifestFile manifest_file(const std::string& json, const std::string& origin);  // and back
std::string text_of(const Manifest&);
// Exit::data naming `origin` where a bit of the text has changed, its version is not one this program reads, names lead out of the
// folder, or the boxes of a tensor do not cover it exactly once.
Manifest manifest_of(const std::string& text, const std::string& origin);

}  // namespace gyr
