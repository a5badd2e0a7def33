// SPDX-License-Identifier: BSD-3-Clause
// Maps the weight names of a model to the tensors of a Hugging Face folder of one family, and back.
#pragma once

#include <map>
#include <set>
#include <string>

#include "modules/model/model_config.hpp"
#include "src/huggingface/stored_place.hpp"

namespace gyr {

struct Family;

inline constexpr const char *embedding_name = "model.embed_tokens.weight", *head_name = "lm_head.weight";  // our weight names

// Deviations of a folder's tensor names from those of its class; transformers accepts both.
struct Spelling {
  bool bare = false;         // names lack the prefix of the class (first published GPT-2)
  bool gamma_beta = false;   // LayerNorm.gamma and LayerNorm.beta instead of .weight and .bias (first published BERT)
  bool inner_tower = false;  // vision_tower.vision_model. instead of vision_tower. (LLaVA before transformers 5)
  // Tensors stored as MXFP4, in NAME_blocks and NAME_scales (published gpt-oss). A block runs along a row of the
  // weight, so the tensor is not transposed.
  std::set<std::string> in_blocks = {};
};

class StoredNames {
 public:
  StoredNames(const Family&, const ModelConfig&, Spelling = {});

  const std::string& embedding() const { return embedding_; }
  const std::string& head() const { return head_; }  // given for a tied head too, which may or may not be stored
  // Place of a weight of the model; for an unknown weight, the tensor of the same name.
  StoredPlace place(const std::string& weight) const;
  // Weights that a tensor contains; empty if it does not belong to the model.
  const std::vector<std::string>& weights(const std::string& tensor) const;
  // copies(): names of further tensors that may repeat a weight. copied(): the weight that such a tensor repeats; empty
  // if it repeats none.
  const std::vector<std::string>& copies(const std::string& weight) const;
  std::string copied(const std::string& tensor) const;
  // True if the folder may contain this extra tensor, which is ignored, e.g. because transformers recomputes it.
  bool is_ignored_tensor(const std::string& tensor) const;

 private:
  const Family* family_;
  std::map<std::string, StoredPlace> places_;
  std::map<std::string, std::vector<std::string>> weights_, copies_;
  std::map<std::string, std::string> copied_;
  std::string embedding_, head_;
};

}  // namespace gyr
