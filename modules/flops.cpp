// SPDX-License-Identifier: BSD-3-Clause
#include "modules/flops.hpp"

#include "modules/embedding.hpp"
#include "modules/head.hpp"
#include "modules/layer.hpp"

namespace gyr {

// What the modules declare: the declaration is the one place that knows.
std::vector<Weight> declared_weights(const ModelConfig& c) {
  Parameters<float> parameters(1, 0);
  Embedding<float> embedding(c, parameters);
  std::vector<std::unique_ptr<Layer<float>>> layers;
  for (const char symbol : c.pattern)
    layers.push_back(std::get<MakeLayer<float>>(layer_type(symbol).make)(c, fmt::format("model.layers.{}", layers.size()), parameters));
  Head<float> head(c, c.tied ? &embedding.table() : nullptr, parameters);
  std::vector<Weight> weights;
  for (const auto& p : parameters.all()) weights.push_back(p->weight);
  return weights;
}

Index parameter_count(const ModelConfig& c) {
  Index count = 0;
  for (const Weight& w : declared_weights(c)) count += w.size();
  return count;
}

TokenFlops forward_flops(const ModelConfig& c, Index length) {
  const double head = 2.0 * double(c.width) * double(c.vocabulary);
  TokenFlops sum{head, head, head};
  for (const char symbol : c.pattern) {
    const LayerFlops f = layer_type(symbol).flops(c, length);
    sum.minimal += f.products + f.attention + f.recurrence + f.convolution;
    sum.executed += f.products + f.attention + f.scan + f.convolution;
    sum.megatron += f.products + 2 * f.attention + f.recurrence * 7 / 5;
  }
  return sum;
}

StageCosts stage_costs(const ModelConfig& c, Index length) {
  StageCosts costs;
  for (const char symbol : c.pattern) {
    const LayerFlops f = layer_type(symbol).flops(c, length);
    costs.layers.push_back(f.products + f.attention + f.scan + f.convolution);
  }
  costs.embedding = double(c.width);  // a copy per token
  costs.head = 2.0 * double(c.width) * double(c.vocabulary);
  return costs;
}

}  // namespace gyr
