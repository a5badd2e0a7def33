// SPDX-License-Identifier: BSD-3-Clause
// A checkpoint as the source of a model's state: its header, and its tensors by content and weight.
#pragma once

#include "src/checkpoint/stored_checkpoint.hpp"
#include "src/checkpoint/weight_source.hpp"

namespace gyr {

class CheckpointFile : public WeightSource {
 public:
  // Exit::missing, or Exit::data unless it is a complete checkpoint.
  explicit CheckpointFile(const std::filesystem::path& path) : stored_(path) {}

  const CheckpointHeader& header() const { return stored_.header(); }
  bool has(Content, const std::string& weight) const;
  TensorReader open(Content, const std::string& weight) const;

  std::string name() const override { return stored_.name(); }
  std::string key(const std::string& weight) const override { return path_of(Content::weight, weight); }
  std::vector<std::string> keys() const override;
  // The weight itself where it is stored as `wanted`, otherwise its master, if there is one.
  TensorReader open(const std::string& weight, DType wanted) const override;
  void check(int rank, int ranks) const override { stored_.check_files(rank, ranks); }
  // What a weight's numbers were before they were widened to be stored, as in "float16"; otherwise the name of their type.
  std::string meaning(const std::string& weight) const;

  const StoredCheckpoint& stored() const { return stored_; }

 private:
  const StoredTensor& tensor(Content, const std::string& weight) const;

  StoredCheckpoint stored_;
};

}  // namespace gyr
