// SPDX-License-Identifier: BSD-3-Clause
// Writes Hugging Face model folders with the weights of the test cases, in any type and number of shards. It uses the
// safetensors writer under test.
#pragma once

#include <algorithm>

#include <nlohmann/json.hpp>

#include "regression/support/cases.hpp"
#include "regression/support/folder.hpp"
#include "src/checkpoint/catalogue.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/half.hpp"
#include "src/huggingface/model_folder.hpp"

namespace gyr::testing {

inline std::string bytes_of(safetensors::Type type, double x) {
  const auto raw = [](auto value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
  switch (type) {
    case safetensors::Type::f16: return raw(float_to_half(float(x)));
    case safetensors::Type::bf16: return raw(bf16(float(x)));
    case safetensors::Type::f64: return raw(x);
    default: return raw(float(x));
  }
}

// Writes a safetensors file with values of the test cases for these weights.
inline void write_weights(const std::filesystem::path& file, const std::vector<Weight>& weights, safetensors::Type type) {
  std::vector<safetensors::Tensor> tensors;
  for (const Weight& w : weights) tensors.push_back({w.name, type, w.shape});
  safetensors::Writer writer(file, tensors);
  for (const Weight& w : weights) {
    std::string data;
    const WeightValues values(w);
    for (Index i = 0; i < w.size(); ++i) data += bytes_of(type, values(i));
    writer.write(data.data(), Index(data.size()));
  }
  writer.commit();
}

inline std::vector<Weight> weights_of(const ModelConfig& model) {
  std::vector<Weight> weights;
  for (const PlacedTensor& placed : model_weights(model)) weights.push_back(placed.weight);
  return weights;
}

// Writes config.json and the weights; with more than one shard also the index.
inline void write_model_folder(const std::filesystem::path& folder, const ModelConfig& model, safetensors::Type type, int shards = 1) {
  std::filesystem::create_directories(folder);
  HuggingFaceConfig config;
  config.model = model;
  put_contents(folder / config_file_name, write_config_json(config));
  const std::vector<Weight> weights = weights_of(model);
  if (shards == 1) return write_weights(folder / one_file_name, weights, type);
  nlohmann::json index;
  Index total = 0;
  for (int s = 0; s < shards; ++s) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards);
    const auto at = [&](int shard) { return weights.begin() + Index(weights.size()) * shard / shards; };
    const std::vector<Weight> some(at(s), at(s + 1));
    write_weights(folder / name, some, type);
    for (const Weight& w : some) index["weight_map"][w.name] = name, total += w.size() * safetensors::size_of(type);
  }
  index["metadata"]["total_size"] = total;
  put_contents(folder / shard_index_name, index.dump());
}

}  // namespace gyr::testing
