// SPDX-License-Identifier: BSD-3-Clause
#include "modules/model/bundle_shapes.hpp"

#include <algorithm>

#include "modules/model/layer.hpp"

namespace gyr {

std::vector<BundleShape> bundle_shapes(const ModelConfig& c, DType dtype, const BundleRows& rows, Index layer) {
  std::vector<BundleShape> shapes{{&residual_stream, dtype, rows.text, c.hidden_size}};
  if (rows.source > 0 && (has_encoder(c) || layer < retrieval_layers(c).last))
    shapes.push_back({&encoder_stream, dtype, rows.source, encoder_config(c).hidden_size});
  if (const Span reading = rows.before > 0 ? retrieval_layers(c) : Span{}; layer > reading.first && layer < reading.last)
    shapes.push_back({&neighbours_before, dtype, rows.before, encoder_config(c).hidden_size});
  if (const Index buckets = c.attention.relative_bias.buckets; buckets > 0)
    shapes.push_back({&position_bias, accumulator_of(dtype), buckets, std::max<Index>(1, c.attention.num_heads / rows.ranks)});
  for (const LayerType& type : layer_types())
    if (type.traits.carried && c.pattern.find(type.symbol) < std::size_t(layer) && std::size_t(layer) <= c.pattern.rfind(type.symbol))
      shapes.push_back(type.traits.carried(c, dtype, rows));
  return shapes;
}

}  // namespace gyr
