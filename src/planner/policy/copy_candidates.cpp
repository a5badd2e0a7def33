// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/policy/copy_candidates.hpp"

#include <algorithm>
#include <numeric>

#include "src/base/limits.hpp"
#include "src/base/precision.hpp"
#include "src/parallel/mesh.hpp"

namespace gyr {

namespace {

constexpr int smallest_part = 8;  // of all ranks: fewer would take far longer to generate

std::vector<std::string> meshes_of(const RunConfig& run, int ranks, const Cluster& cluster) {
  const std::string& given = run.policy->generation.ranks;
  if (given != "all") return {given};
  std::vector<std::string> meshes{"all"};
  const int per_node = int(cluster.per_node);
  for (int size = 1; size < ranks; size *= 2) {
    const bool aligned = size <= per_node ? per_node % size == 0 : size % per_node == 0;
    if (!aligned || size * smallest_part < ranks) continue;
    for (int first = 0; first + size <= ranks; first += size) {
      Mesh mesh{std::vector<int>(std::size_t(size))};
      std::iota(mesh.ranks.begin(), mesh.ranks.end(), first);
      meshes.push_back(mesh.text());
    }
  }
  return meshes;
}

std::vector<std::string> precisions_of(const RunConfig& run, const Cluster& cluster) {
  const std::string& given = run.policy->generation.precision;
  if (!given.empty() || precision_of(run.train.precision) == DType::bf16 || cluster.device.bf16 <= 0) return {given};
  return {given, "bf16"};
}

}  // namespace

std::vector<GenerationLayout> copy_candidates(const RunConfig& run, int ranks, const Cluster& cluster) {
  std::vector<GenerationLayout> all;
  for (const std::string& text : meshes_of(run, ranks, cluster)) {
    const std::optional<Mesh> mesh = Mesh::read(text, ranks);
    if (!mesh) continue;  // the rules of the deck refuse it
    const int size = mesh->size(), most = int(std::min<Index>(size, cluster.per_node));
    for (const std::string& precision : precisions_of(run, cluster))
      for (int tensor = 1; tensor <= most; tensor *= 2)
        for (int pipeline = 1; tensor * pipeline <= size && pipeline <= most_axis; pipeline *= 2)
          if (size % (tensor * pipeline) == 0) all.push_back({.ranks = text, .pipeline = pipeline, .tensor = tensor, .precision = precision});
  }
  return all;
}

}  // namespace gyr
