// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/checkpoint_file.hpp"

#include <algorithm>

namespace gyr {

CheckpointFile::CheckpointFile(const std::filesystem::path& path)
    : file_(hdf5::File::open(path)), header_(read_header(file_)), paths_(file_.datasets()) {}

bool CheckpointFile::has(Content content, const std::string& weight) const {
  return std::binary_search(paths_.begin(), paths_.end(), path_of(content, weight));
}

hdf5::Dataset CheckpointFile::dataset(Content content, const std::string& weight) const {
  hdf5::Dataset dataset = file_.dataset(path_of(content, weight));
  require(dataset.checksummed(), Exit::data, "{}: carries no checksums; this program did not write it", dataset.name());
  return dataset;
}

StoredNumbers CheckpointFile::open(Content content, const std::string& weight) const {
  const auto dataset = std::make_shared<hdf5::Dataset>(this->dataset(content, weight));
  return {dataset->name(), dataset->dtype(), dataset->shape(),
          [dataset](const Box& box, void* data, const Shape& array, const Box& there) { dataset->read(box, data, array, there); }};
}

std::vector<std::string> CheckpointFile::keys() const {
  std::vector<std::string> keys;
  for (const std::string& path : paths_)
    if (path.starts_with("/model/")) keys.push_back(path);
  return keys;
}

StoredNumbers CheckpointFile::open(const std::string& weight, DType wanted) const {
  StoredNumbers itself = open(Content::weight, weight);
  return itself.dtype == wanted || !has(Content::master, weight) ? itself : open(Content::master, weight);
}

std::string CheckpointFile::meaning(const std::string& weight) const { return dataset(Content::weight, weight).text("dtype_semantic"); }

}  // namespace gyr
