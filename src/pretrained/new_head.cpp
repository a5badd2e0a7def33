// SPDX-License-Identifier: BSD-3-Clause
#include "src/pretrained/new_head.hpp"

#include <algorithm>

#include "modules/cost/flops.hpp"
#include "modules/objectives/objective.hpp"
#include "src/pretrained/adapters.hpp"
#include "src/pretrained/added_retrieval.hpp"
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

// Weights of the head that are initialised, and weights of the stored head that are left out.
struct Heads {
  std::vector<Weight> drawn, left;
};
Heads heads_of(const ModelConfig& model, const ModelConfig& stored) {
  Heads heads{head_of(model), head_of(stored)};
  const Objective &a = *model.objective, &b = *stored.objective;
  const bool same_kind =
      (a.writes_next_token() && b.writes_next_token()) || (a.name() == std::string_view("mlm") && a.name() == std::string_view(b.name()));
  if (!same_kind || a.further_losses() == b.further_losses()) return heads;
  const auto take = [](std::vector<Weight>& from, const std::vector<Weight>& common) {
    std::erase_if(from,
                  [&](const Weight& w) { return std::any_of(common.begin(), common.end(), [&](const Weight& c) { return c.name == w.name; }); });
  };
  const std::vector<Weight> all = heads.drawn;
  take(heads.drawn, heads.left), take(heads.left, all);
  return heads;
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
  Heads heads = heads_of(model, stored);
  return replace_with_initialised(open_weights(path, stored), std::move(heads.left), std::move(heads.drawn), seed);
}

std::string describe_new_head(const std::filesystem::path& path, const ModelConfig& model) {
  const Heads heads = heads_of(model, defaults_of(path).model);
  return fmt::format("{} weights are read; new: {}; left out: {}", declared_weights(model).size() - heads.drawn.size(), names_of(heads.drawn),
                     names_of(heads.left));
}

namespace {

std::string classes_text(const Objective& objective) {
  return objective.classes().empty() ? "" : fmt::format(" ({} classes)", objective.classes().size());
}

}  // namespace

void require_same_head(const std::filesystem::path& path, const ModelConfig& model) {
  const std::shared_ptr<const Objective> kept = defaults_of(path).model.objective;
  const Objective &stored = *kept, &wanted = *model.objective;
  require(
      keeps_head(stored, wanted), Exit::config,
      "{}: its head is of train.objective = {}{}, but the deck's of {}{}; train.init_head=new reads the trunk, and initialises the new parts of the "
      "head",
      path.string(), stored.name(), classes_text(stored), wanted.name(), classes_text(wanted));
}

std::unique_ptr<WeightSource> open_initial(const std::filesystem::path& path, const ModelConfig& model, bool new_head, std::uint64_t seed) {
  if (new_head) return open_trunk(path, model, seed);
  require_same_head(path, model);
  const ModelConfig stored = defaults_of(path).model;
  if (!adds_retrieval(stored, model)) return open_adapted(path, model, seed);
  return add_retrieval(open_adapted(path, without_retrieval(path.string(), stored, model), seed), model, seed);
}

std::string describe_initial(const std::filesystem::path& path, const ModelConfig& model, bool new_head) {
  if (new_head) return describe_new_head(path, model);
  return adds_retrieval(defaults_of(path).model, model) ? describe_added_retrieval(model) : "";
}

void check_initial(const std::filesystem::path& path, const ModelConfig& model, bool new_head) {
  check_weights(*open_initial(path, model, new_head, 0), declared_weights(model));
}

}  // namespace gyr
