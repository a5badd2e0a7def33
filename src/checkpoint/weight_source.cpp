// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/weight_source.hpp"

#include <algorithm>

#include "src/checkpoint/numbers.hpp"

namespace gyr {

void check_weights(const WeightSource& source, const std::vector<Weight>& weights) {
  const std::vector<std::string> keys = source.keys();
  std::vector<std::string> known;
  for (const Weight& w : weights) {
    known.push_back(source.key(w.name));
    require(std::binary_search(keys.begin(), keys.end(), known.back()), Exit::config,
            "{}: has no weight {}: it belongs to another model than the deck's", source.name(), w.name);
    const TensorReader stored = source.open(w.name, DType::f32);
    require(stored.shape == w.shape, Exit::config, "{}: has shape {}, but the deck's model needs {}: the file belongs to another model", stored.name,
            text_of(stored.shape), text_of(w.shape));
  }
  std::sort(known.begin(), known.end());
  for (const std::string& key : keys)
    require(std::binary_search(known.begin(), known.end(), key), Exit::config,
            "{}: has weight {}, which the deck's model lacks: it belongs to another model", source.name(), printable(key));
}

}  // namespace gyr
