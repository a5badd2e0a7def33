// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/checkpoint_file.hpp"

#include <algorithm>

namespace gyr {

bool CheckpointFile::has(Content content, const std::string& weight) const { return stored_.find(path_of(content, weight)) != nullptr; }

const StoredTensor& CheckpointFile::tensor(Content content, const std::string& weight) const {
  const StoredTensor* found = stored_.find(path_of(content, weight));
  require(found != nullptr, Exit::data, "{}: holds no {} of {}", name(), name_of(content), weight);
  return *found;
}

TensorReader CheckpointFile::open(Content content, const std::string& weight) const {
  const StoredTensor& t = tensor(content, weight);
  return {name() + ":" + t.path, t.dtype, t.shape,
          [this, &t](std::span<const BoxPair> parts, void* data, const Shape& array) { stored_.read(t, parts, data, array); }};
}

std::vector<std::string> CheckpointFile::keys() const {
  std::vector<std::string> keys;
  for (const StoredTensor& t : stored_.tensors())
    if (t.path.starts_with("/model/")) keys.push_back(t.path);
  std::sort(keys.begin(), keys.end());
  return keys;
}

TensorReader CheckpointFile::open(const std::string& weight, DType wanted) const {
  TensorReader itself = open(Content::weight, weight);
  return itself.dtype == wanted || !has(Content::master, weight) ? itself : open(Content::master, weight);
}

std::string CheckpointFile::meaning(const std::string& weight) const { return tensor(Content::weight, weight).meaning; }

}  // namespace gyr
