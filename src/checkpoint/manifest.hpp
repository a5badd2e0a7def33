// SPDX-License-Identifier: BSD-3-Clause
// Manifest of a checkpoint: which file holds which boxes of which tensor, with checksums. Loading relies on it: a
// checkpoint is complete if every file matches its manifest. manifest.json carries the checksum of its own text.
#pragma once

#include <optional>

#include "kernels/base/box.hpp"
#include "src/checkpoint/header.hpp"

namespace gyr {

// A full (unsharded) tensor of the checkpoint.
struct StoredTensor {
  std::string path;  // HDF5 path, such as /model/layers/0/mamba/D
  std::string hf_name, long_name;
  DType dtype;
  Shape shape;
  std::string meaning;  // original type if the values were widened for storage, as in half_meaning; otherwise the name of dtype
};
inline constexpr const char* half_meaning = "float16";
StoredTensor stored_tensor(Content, const std::string& weight_name, DType, const Shape&);

// A box of a tensor that a file stores.
struct StoredBox {
  std::size_t tensor;  // index of the tensor in Manifest::tensors
  std::string dataset;
  Box box;
  std::uint64_t values_checksum = 0;  // checksum of the values in row-major order, taken in memory while writing
  std::vector<hdf5::Extent> extents;  // byte ranges of the file that store the box
  std::uint64_t stored_sum = 0;       // XXH3 checksum of the bytes in `extents`, concatenated
};

struct ManifestFile {
  std::string name;  // file name, in the manifest's folder
  Index bytes = 0;
  std::uint64_t sum = 0;
  std::vector<StoredBox> boxes;
  std::string root = {};  // unique prefix of the file's dataset paths, see File::name_root; empty in files of older versions
};

struct Manifest {
  CheckpointHeader header;
  std::vector<StoredTensor> tensors;
  std::vector<ManifestFile> files;
  std::optional<ManifestFile> index;  // index.h5: views of the full tensors; never used for loading

  Index bytes() const;  // bytes of all tensors of the checkpoint
};

inline constexpr const char *manifest_name = "manifest.json", *index_name = "index.h5";

std::string text_of(const ManifestFile&);                                        // manifest entry as JSON, to send it between ranks
ManifestFile manifest_file(const std::string& json, const std::string& origin);  // parses a manifest entry that text_of() has written
std::string text_of(const Manifest&);
// Exit::data naming `origin` if the text does not match its checksum, this program cannot read its version, a file name
// points out of the folder, or the boxes of a tensor do not cover it exactly once.
Manifest manifest_of(const std::string& text, const std::string& origin);

}  // namespace gyr
