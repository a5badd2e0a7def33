// SPDX-License-Identifier: BSD-3-Clause
#include "src/huggingface/slab.hpp"

#include <algorithm>

#include "src/checkpoint/shard_writer.hpp"

namespace gyr {

std::vector<Slab> slabs_of(const std::vector<std::pair<DType, Shape>>& tensors) {
  std::vector<Slab> slabs;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [type, shape] = tensors[i];
    const Index step = slab_rows(type, shape, Index(4) << 20);
    for (Index first = 0; first < shape[0]; first += step) {
      Box box = full_box(shape);
      box.first[0] = first, box.count[0] = std::min(step, shape[0] - first);
      const Index bytes = elements(box.count) * size_of(type);
      slabs.push_back({i, std::move(box), bytes});
    }
  }
  return slabs;
}

Index largest(const std::vector<Slab>& slabs) {
  Index bytes = 0;
  for (const Slab& slab : slabs) bytes = std::max(bytes, slab.bytes);
  return bytes;
}

}  // namespace gyr
