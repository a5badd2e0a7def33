// SPDX-License-Identifier: BSD-3-Clause
// Where the weights of a model lie in a folder of one family, and back.
#pragma once

#include <map>
#include <set>
#include <string>

#include "modules/model/model_config.hpp"
#include "src/huggingface/stored_place.hpp"

namespace gyr {

struct Family;

inline constexpr const char *embedding_name = "model.embed_tokens.weight", *head_name = "lm_head.weight";  // ours

// How a folder departs from the names of its class; transformers reads either.
struct Spelling {
  bool bare = false;        // without the prefix of the class (GPT-2's first publication)
  bool gamma_beta = false;  // LayerNorm.gamma and LayerNorm.beta for its weight and bias (BERT's first publication)
  // Tensors that are NAME_blocks of 4 bits there and their scales (gpt-oss's publication); a block lies along a row of a weight, never transposed.
  std::set<std::string> in_blocks = {};
};

class StoredNames {
 public:
  StoredNames(const Family&, const ModelConfig&, Spelling = {});

  const std::string& embedding() const { return embedding_; }
  const std::string& head() const { return head_; }  // of a tied head too, which is stored or not
  // Of a weight that the model has; what it has not is a tensor of that name.
  StoredPlace place(const std::string& weight) const;
  // What lies in a tensor: nothing where it is none of the model's.
  const std::vector<std::string>& weights(const std::string& tensor) const;
  // Under which other names it may be there once more, and which weight such a tensor is again; empty: none.
  const std::vector<std::string>& copies(const std::string& weight) const;
  std::string copied(const std::string& tensor) const;
  // Whether the folder may hold such a tensor beside the weights: what transformers computes anew.
  bool is_ignored_tensor(const std::string& tensor) const;

 private:
  const Family* family_;
  std::map<std::string, StoredPlace> places_;
  std::map<std::string, std::vector<std::string>> weights_, copies_;
  std::map<std::string, std::string> copied_;
  std::string embedding_, head_;
};

}  // namespace gyr
