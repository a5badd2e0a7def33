// SPDX-License-Identifier: BSD-3-Clause
#include "src/pretrained/weights.hpp"

#include "modules/objectives/objective.hpp"
#include "src/checkpoint/checkpoint_file.hpp"
#include "src/huggingface/model_folder.hpp"

namespace gyr {

namespace {

// A checkpoint without its multi-token-prediction modules (mtp.*).
class CheckpointWithoutMtp final : public CheckpointFile {
 public:
  using CheckpointFile::CheckpointFile;
  std::vector<std::string> keys() const override {
    std::vector<std::string> keys = CheckpointFile::keys();
    std::erase_if(keys, [modules = key("mtp.")](const std::string& key) { return key.starts_with(modules); });
    return keys;
  }
};

}  // namespace

std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& path, const ModelConfig& config) {
  if (is_model_folder(path)) return std::make_unique<FolderWeights>(path, config);
  if (config.objective->depths() == 0) return std::make_unique<CheckpointWithoutMtp>(path);
  return std::make_unique<CheckpointFile>(path);
}

}  // namespace gyr
