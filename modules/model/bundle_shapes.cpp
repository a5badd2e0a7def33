// SPDX-License-Identifier: BSD-3-Clause
#include "modules/model/bundle_shapes.hpp"

#include <algorithm>

#include "modules/model/layer.hpp"

namespace gyr {

std::vector<BundleShape> bundle_shapes(const ModelConfig& c, DType dtype, const BundleRows& rows, Index layer) {
  std::vector<BundleShape> shapes{{&residual_stream, dtype, rows.text, c.hidden_size}};
  if (rows.source > 0 || rows.before > 0) {
    const Span reading = retrieval_layers(c);
    const Index source_width = encoder_config(c).hidden_size;
    const bool reads_source = reads_images(c) ? layer <= layers_of_encoder(c) : has_encoder(c) || layer < reading.last;
    if (rows.source > 0 && reads_source) shapes.push_back({&encoder_stream, dtype, rows.source, source_width});
    if (rows.before > 0 && layer > reading.first && layer < reading.last) shapes.push_back({&neighbours_before, dtype, rows.before, source_width});
  }
  if (const Index buckets = c.attention.relative_bias.buckets; buckets > 0)
    shapes.push_back({&position_bias, accumulator_of(dtype), buckets, std::max<Index>(1, c.attention.num_heads / rows.ranks)});
  for (const LayerType& type : layer_types())
    if (type.traits.carried && c.pattern.find(type.symbol) < std::size_t(layer) && std::size_t(layer) <= c.pattern.rfind(type.symbol))
      shapes.push_back(type.traits.carried(c, dtype, rows));
  return shapes;
}

}  // namespace gyr
