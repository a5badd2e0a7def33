// SPDX-License-Identifier: BSD-3-Clause
#include "modules/settings/hybrid_pattern.hpp"

#include <cmath>

#include "kernels/base/error.hpp"

namespace gyr {

namespace {

// Replaces an 'M' by `symbol` after every `spacing` other 'M's. `spacing` is a real number.
void spread(std::string& pattern, char symbol, double spacing) {
  double left = spacing;
  for (char& layer : pattern) {
    if (layer != 'M') continue;
    if (left < 0.5) {
      layer = symbol;
      left += spacing;
    } else {
      left -= 1;
    }
  }
}

}  // namespace

std::string hybrid_pattern(Index layers, double attention_ratio, double mlp_ratio) {
  const Index attention = Index(std::nearbyint(double(layers) * attention_ratio)), mlp = Index(std::nearbyint(double(layers) * mlp_ratio));
  const Index mamba = layers - attention - mlp;
  require(
      mamba >= 0, Exit::config,
      "model.attention_ratio = {} and model.mlp_ratio = {}: {} attention and {} MLP layers are more than model.layers = {}; lower one of the ratios",
      attention_ratio, mlp_ratio, attention, mlp, layers);
  std::string pattern(std::size_t(layers), 'M');
  spread(pattern, '*', double(layers - attention) / double(attention + 1));
  if (mlp > 0) spread(pattern, '-', double(mamba) / double(mlp));
  return pattern;
}

}  // namespace gyr
