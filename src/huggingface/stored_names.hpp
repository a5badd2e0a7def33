// SPDX-License-Identifier: BSD-3-Clause
// What the weights of a model are called in a folder of one family, and back.
#pragma once

#include <map>
#include <string>

#include "modules/model_config.hpp"

namespace gyr {

struct Family;

inline constexpr const char *embedding_name = "model.embed_tokens.weight", *head_name = "lm_head.weight";  // ours

class StoredNames {
 public:
  StoredNames(const Family&, const ModelConfig&);

  const std::string& embedding() const { return embedding_; }
  const std::string& head() const { return head_; }  // of a tied head too, which is stored or not
  std::string stored(const std::string& weight) const;
  std::string weight(const std::string& stored) const;  // another name as it is

 private:
  std::map<std::string, std::string> stored_, weights_;
  std::string embedding_, head_;
};

}  // namespace gyr
