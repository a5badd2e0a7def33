// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/stored_names.hpp"

#include "modules/flops.hpp"
#include "src/huggingface/family.hpp"

namespace gyr {

StoredNames::StoredNames(const Family& family, const ModelConfig& model)
    : embedding_(family.stored_name(model, embedding_name)), head_(family.stored_name(model, head_name)) {
  for (const Weight& w : declared_weights(model)) {
    const std::string name = family.stored_name(model, w.name);
    stored_[w.name] = name;
    weights_[name] = w.name;
  }
}

std::string StoredNames::stored(const std::string& weight) const {
  const auto found = stored_.find(weight);
  return found == stored_.end() ? weight : found->second;
}

std::string StoredNames::weight(const std::string& stored) const {
  const auto found = weights_.find(stored);
  return found == weights_.end() ? stored : found->second;
}

}  // namespace gyr
