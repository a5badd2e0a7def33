// SPDX-License-Identifier: BSD-3-Clause
// Names of a model's layers in PEFT. PEFT uses the names that layers have in memory in transformers 5, which for a few
// classes differ from those of the stored tensors. For some layers PEFT has no adapter, or finds them in another way.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "modules/weights/weight.hpp"
#include "src/huggingface/family.hpp"
#include "src/huggingface/stored_names.hpp"

namespace gyr {

inline constexpr std::string_view peft_prefix = "base_model.model.";  // prefix of all tensor names in a PEFT file

// How PEFT finds the layer of a weight: by target_modules; by target_parameters only; not at all, because it refuses
// the layer; or not at all, because the weight is no layer of its own in memory.
enum class PeftWay { layer, parameter, refused, absent };

class PeftNames {
 public:
  PeftNames(const Family&, const ModelConfig& model);  // model: without adapters

  const StoredNames& stored() const { return stored_; }
  StoredPlace place(const std::string& weight) const { return stored_.place(weight); }
  // Name of the parameter in memory that holds the weight; empty if there is none, as for modules of multi-token
  // prediction and for experts that transformers stacks.
  std::string parameter(const Weight&) const;
  std::string layer(const Weight&) const;  // the same without .weight
  PeftWay way(const Weight&) const;
  // Name of the head's parameter if the model shares its matrix with the embedding, otherwise empty.
  std::string shared_head() const;
  // True if the weight is the embedding and other parts of the model use it too: PEFT would replace only one of them.
  bool is_shared_embedding(const Weight&) const;

  std::string task_type() const;           // PEFT's task type for the class, such as CAUSAL_LM; empty if there is none
  std::vector<std::string> heads() const;  // modules that PEFT stores with every adapter of this task type
  std::string python_module() const;       // such as transformers.models.bert.modeling_bert
  const std::string& architecture() const { return family_->architecture; }

 private:
  std::string in_memory(std::string name) const;

  const Family* family_;
  StoredNames stored_;
  bool tied_, has_encoder_;
};

// Shortest names that select exactly `layers` among `all`. A layer is given by the last part of its name, as in q_proj,
// if all layers that end so are selected, and otherwise by its full name.
std::vector<std::string> shortest_layer_names(const std::set<std::string>& layers, const std::set<std::string>& all);

}  // namespace gyr
