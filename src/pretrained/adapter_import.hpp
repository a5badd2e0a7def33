// SPDX-License-Identifier: BSD-3-Clause
// The weights of a model folder together with a PEFT folder: its LoRA adapters, and the weights that it replaces
// (modules_to_save, trained biases).
#pragma once

#include <map>
#include <set>

#include "src/huggingface/adapter_config.hpp"
#include "src/huggingface/model_folder.hpp"
#include "src/huggingface/peft_names.hpp"

namespace gyr {

inline constexpr const char* adapter_file_name = "adapter_model.safetensors";

class AdapterWeights final : public WeightSource {
 public:
  // `model`: the base model, which `base` holds. Exit::data if the file lacks tensors that adapter_config.json requires,
  // or has tensors of layers that take no adapter. Exit::missing if the folder lacks one of the two files.
  AdapterWeights(const FolderWeights& base, const std::filesystem::path& adapters, const ModelConfig& model);

  // The adapters, and in `also` the names of replaced weights.
  const LoraConfig& lora() const { return lora_; }
  double dropout() const { return config_.dropout; }
  safetensors::Type type(const std::string& weight) const;  // type in the file that holds the weight

  std::string name() const override { return file_.name(); }
  std::string key(const std::string& weight) const override;
  std::vector<std::string> keys() const override;
  TensorReader open(const std::string& weight, DType wanted) const override;
  void check(int rank, int ranks) const override { base_.check(rank, ranks); }

 private:
  void take_adapters(const std::vector<Weight>&);
  void take_adapter(const Weight&, const std::string& part, const std::string& ours);
  void take_replaced(const std::vector<Weight>&);
  void refuse_unknown(const std::vector<Weight>&) const;
  std::string layers_that_take_adapters(const std::vector<Weight>&) const;
  const safetensors::Tensor* find(const std::string& name) const;

  struct Source {
    const safetensors::Tensor* tensor;
    StoredPlace place;
  };
  const FolderWeights& base_;
  std::string config_name_;
  AdapterConfig config_;
  PeftNames names_;
  safetensors::Reader file_;
  LoraConfig lora_;
  std::map<std::string, const safetensors::Tensor*> tensors_;  // of the PEFT file, by name
  std::set<std::string> adapted_;                              // layers with an adapter, by their names in memory
  std::map<std::string, Source> sources_;                      // weight -> tensor of the PEFT file
};

}  // namespace gyr
