// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/tensor_set.hpp"

#include <map>

#include "kernels/base/printable.hpp"
#include "src/checkpoint/numbers.hpp"

namespace gyr {

namespace {

// Format 1 is older than other rules than AdamW.
const Content first_moment = Content::state("first_moment"), second_moment = Content::state("second_moment");

using Tensors = std::map<std::string, const StoredTensor*>;

const StoredTensor& present(const Tensors& tensors, Content content, const std::string& weight, const std::string& because,
                            const std::string& origin) {
  const auto at = tensors.find(path_of(content, weight));
  require(at != tensors.end(), Exit::data, "{}: the {} of {} is missing, although {}: the file is damaged; use another checkpoint", origin,
          name_of(content), printable(weight), because);
  return *at->second;
}

}  // namespace

void check_tensor_set(const std::vector<StoredTensor>& list, const std::string& origin) {
  Tensors tensors;
  for (const StoredTensor& t : list) tensors[t.path] = &t;
  for (const StoredTensor& t : list)
    for (const Content content : {first_moment, second_moment, Content::master}) {
      const std::string prefix = path_of(content, "");
      if (!t.path.starts_with(prefix)) continue;
      const std::string weight = t.path.substr(prefix.size()), because = fmt::format("the file holds its {}", name_of(content));
      const StoredTensor& stored_weight = present(tensors, Content::weight, weight, because, origin);
      require(stored_weight.shape == t.shape, Exit::data, "{}: {} has shape {}, but its weight has {}", origin, printable(t.path), text_of(t.shape),
              text_of(stored_weight.shape));
      if (content == Content::master) continue;
      for (const Content other : {first_moment, second_moment}) present(tensors, other, weight, because, origin);
      if (stored_weight.dtype == DType::bf16) present(tensors, Content::master, weight, because, origin);
    }
}

}  // namespace gyr
