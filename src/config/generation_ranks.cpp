// SPDX-License-Identifier: BSD-3-Clause
#include "src/config/generation_ranks.hpp"

#include "src/base/limits.hpp"

namespace gyr {

namespace {

bool is_separate(const RunConfig& run) { return run.policy && run.policy->generation.separate; }

}  // namespace

Mesh generating_ranks(const RunConfig& run, int ranks) {
  const std::string& text = run.policy->generation.ranks;
  const std::optional<Mesh> mesh = Mesh::read(text, ranks);
  require(mesh.has_value(), Exit::config,
          "rl.generate.ranks = {}: the run has ranks 0 to {}; write all, or numbers and ranges in ascending order, each rank once, as in 0-3,6", text,
          ranks - 1);
  return *mesh;
}

Mesh training_ranks(const RunConfig& run, int ranks) {
  if (!is_separate(run)) return Mesh::of_all(ranks);
  const Mesh generating = generating_ranks(run, ranks);
  Mesh training;
  for (int rank = 0; rank < ranks; ++rank)
    if (!generating.index_of(rank)) training.ranks.push_back(rank);
  require(training.index_of(0).has_value(), Exit::config,
          "rl.generate.ranks = {}: with rl.generate.separate these ranks only generate, but rank 0 writes checkpoints and log and therefore trains; "
          "name other ranks, such as {}",
          run.policy->generation.ranks, ranks > 2 ? fmt::format("{}-{}", (ranks + 1) / 2, ranks - 1) : "1");
  return training;
}

int ranks_of_run(const RunConfig& run, const Layout& training) {
  if (!is_separate(run)) return training.ranks();
  const std::optional<Mesh> mesh = Mesh::read(run.policy->generation.ranks, most_ranks);
  return training.ranks() + (mesh ? mesh->size() : 0);
}

}  // namespace gyr
