// SPDX-License-Identifier: BSD-3-Clause
#include "src/pretrained/new_head.hpp"

#include <algorithm>

#include "modules/flops.hpp"
#include "modules/objective.hpp"
#include "src/pretrained/drawn_weights.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/pretrained/weights.hpp"

namespace gyr {

namespace {

bool of_trunk(const Weight& w) { return w.name.starts_with("model.") && !w.of_adapter; }

std::vector<Weight> head_of(const ModelConfig& model) {
  std::vector<Weight> weights = declared_weights(model);
  std::erase_if(weights, of_trunk);
  return weights;
}

std::string names_of(const std::vector<Weight>& weights) {
  std::string names;
  for (const Weight& w : weights)
    if (!w.of_adapter) names += (names.empty() ? "" : ", ") + w.name;
  return names.empty() ? "none" : names;
}

}  // namespace

std::unique_ptr<WeightSource> open_trunk(const std::filesystem::path& path, const ModelConfig& model, std::uint64_t seed) {
  const ModelConfig stored = defaults_of(path).model;
  return drawn_beside(open_weights(path, stored), head_of(stored), head_of(model), seed);
}

std::string text_of_new_head(const std::filesystem::path& path, const ModelConfig& model) {
  const std::vector<Weight> head = head_of(model);
  return fmt::format("{} weights of the trunk are read; new: {}; left out: {}", declared_weights(model).size() - head.size(), names_of(head),
                     names_of(head_of(defaults_of(path).model)));
}

void require_same_head(const std::filesystem::path& path, const ModelConfig& model) {
  const std::shared_ptr<const Objective> kept = defaults_of(path).model.objective;
  const Objective &stored = *kept, &wanted = *model.objective;
  require(std::string_view(stored.name()) == wanted.name() && stored.classes().size() == wanted.classes().size(), Exit::config,
          "{}: its head is of train.objective = {} ({} classes), and the deck's of {} ({}); train.init_head=new keeps the trunk and draws the head",
          path.string(), stored.name(), stored.classes().size(), wanted.name(), wanted.classes().size());
}

}  // namespace gyr
