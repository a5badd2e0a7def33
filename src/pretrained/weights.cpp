// SPDX-License-Identifier: BSD-3-Clause
#include "src/pretrained/weights.hpp"

#include "src/checkpoint/checkpoint_file.hpp"
#include "src/huggingface/model_folder.hpp"

namespace gyr {

std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& path, const ModelConfig& config) {
  if (is_model_folder(path)) return std::make_unique<FolderWeights>(path, config);
  return std::make_unique<CheckpointFile>(path);
}

}  // namespace gyr
