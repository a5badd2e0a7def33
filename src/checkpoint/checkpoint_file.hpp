// SPDX-License-Identifier: BSD-3-Clause
// A checkpoint as a source of model state: its header, and its tensors by content (weight, moment, master weight) and
// weight name.
#pragma once

#include "src/checkpoint/stored_checkpoint.hpp"
#include "src/checkpoint/weight_source.hpp"

namespace gyr {

class CheckpointFile : public WeightSource {
 public:
  // Exit::missing if it does not exist; Exit::data unless it is a complete checkpoint.
  explicit CheckpointFile(const std::filesystem::path& path) : stored_(path) {}

  const CheckpointHeader& header() const { return stored_.header(); }
  bool has(Content, const std::string& weight) const;
  TensorReader open(Content, const std::string& weight) const;

  std::string name() const override { return stored_.name(); }
  std::string key(const std::string& weight) const override { return path_of(Content::weight, weight); }
  std::vector<std::string> keys() const override;
  // The stored weight if its type is `wanted`; otherwise its master weight, if there is one.
  TensorReader open(const std::string& weight, DType wanted) const override;
  void check(int rank, int ranks) const override { stored_.check_files(rank, ranks); }
  // Original type of a weight that was widened for storage, such as "float16"; otherwise the name of its stored type.
  std::string meaning(const std::string& weight) const;

  const StoredCheckpoint& stored() const { return stored_; }

 private:
  const StoredTensor& tensor(Content, const std::string& weight) const;

  StoredCheckpoint stored_;
};

}  // namespace gyr
