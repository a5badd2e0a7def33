// SPDX-License-Identifier: BSD-3-Clause
// A checkpoint to be read: its header, and its tensors by content and weight.
#pragma once

#include "src/checkpoint/header.hpp"
#include "src/checkpoint/weight_source.hpp"

namespace gyr {

class CheckpointFile : public WeightSource {
 public:
  // Exit::missing, or Exit::data unless it is a complete checkpoint.
  explicit CheckpointFile(const std::filesystem::path& path);

  const CheckpointHeader& header() const { return header_; }
  bool has(Content, const std::string& weight) const;
  StoredNumbers open(Content, const std::string& weight) const;

  std::string name() const override { return file_.name(); }
  std::string key(const std::string& weight) const override { return path_of(Content::weight, weight); }
  std::vector<std::string> keys() const override;
  // The weight itself where it is stored as `wanted`, otherwise its master, if there is one.
  StoredNumbers open(const std::string& weight, DType wanted) const override;
  // What a weight's numbers were before they were widened to be stored, as in "float16"; otherwise the name of their type.
  std::string meaning(const std::string& weight) const;

 private:
  hdf5::Dataset dataset(Content, const std::string& weight) const;

  hdf5::File file_;
  CheckpointHeader header_;
  std::vector<std::string> paths_;
};

}  // namespace gyr
