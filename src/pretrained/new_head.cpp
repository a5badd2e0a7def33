// SPDX-License-Identifier: BSD-3-Clause
#include "src/pretrained/new_head.hpp"

#include <algorithm>

#include "modules/flops.hpp"
#include "modules/objective.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/pretrained/weights.hpp"

namespace gyr {

namespace {

bool of_trunk(const Weight& w) { return w.name.starts_with("model."); }

std::vector<Weight> head_of(const ModelConfig& model) {
  std::vector<Weight> weights = declared_weights(model);
  std::erase_if(weights, of_trunk);
  return weights;
}

// What is drawn of the head of `model`, and what is left of that which is stored.
struct Heads {
  std::vector<Weight> drawn, left;
};
Heads heads_of(const ModelConfig& model, const ModelConfig& stored) {
  Heads heads{head_of(model), head_of(stored)};
  const Objective &a = *model.objective, &b = *stored.objective;
  if (!a.writes_next_token() || !b.writes_next_token() || a.depths() == b.depths()) return heads;
  const auto take = [](std::vector<Weight>& from, const std::vector<Weight>& common) {
    std::erase_if(from,
                  [&](const Weight& w) { return std::any_of(common.begin(), common.end(), [&](const Weight& c) { return c.name == w.name; }); });
  };
  const std::vector<Weight> all = heads.drawn;
  take(heads.drawn, heads.left), take(heads.left, all);
  return heads;
}

TensorReader drawn(const Weight& w, std::uint64_t seed) {
  TensorReader reader{w.name, DType::f64, w.shape, {}};
  reader.read_parts = [w, stream = Stream(seed, w.name)](std::span<const BoxPair> parts, void* data, const Shape& array) {
    for (const BoxPair& part : parts)
      box_runs(w.shape, part.from, array, part.to, [&](Index from, Index to, Index count) {
        for (Index i = 0; i < count; ++i) static_cast<double*>(data)[to + i] = draw(w.init, stream, from + i);
      });
  };
  return reader;
}

class TrunkWeights final : public WeightSource {
 public:
  TrunkWeights(std::unique_ptr<WeightSource> stored, const ModelConfig& of_stored, const ModelConfig& model, std::uint64_t seed)
      : stored_(std::move(stored)), heads_(heads_of(model, of_stored)), seed_(seed) {}

  std::string name() const override { return stored_->name(); }
  std::string key(const std::string& weight) const override { return find(weight) ? weight : stored_->key(weight); }
  std::vector<std::string> keys() const override {
    std::vector<std::string> keys = stored_->keys();
    for (const Weight& w : heads_.left) std::erase(keys, stored_->key(w.name));
    for (const Weight& w : heads_.drawn) keys.push_back(w.name);
    std::sort(keys.begin(), keys.end());
    return keys;
  }
  TensorReader open(const std::string& weight, DType wanted) const override {
    const Weight* const head = find(weight);
    return head ? drawn(*head, seed_) : stored_->open(weight, wanted);
  }
  void check(int rank, int ranks) const override { stored_->check(rank, ranks); }

 private:
  const Weight* find(const std::string& name) const {
    const auto found = std::find_if(heads_.drawn.begin(), heads_.drawn.end(), [&](const Weight& w) { return w.name == name; });
    return found == heads_.drawn.end() ? nullptr : &*found;
  }

  std::unique_ptr<WeightSource> stored_;
  Heads heads_;
  std::uint64_t seed_;
};

std::string names_of(const std::vector<Weight>& weights) {
  std::string names;
  for (const Weight& w : weights) names += (names.empty() ? "" : ", ") + w.name;
  return names.empty() ? "none" : names;
}

}  // namespace

std::unique_ptr<WeightSource> open_trunk(const std::filesystem::path& path, const ModelConfig& model, std::uint64_t seed) {
  const ModelConfig stored = defaults_of(path).model;
  return std::make_unique<TrunkWeights>(open_weights(path, stored), stored, model, seed);
}

std::string text_of_new_head(const std::filesystem::path& path, const ModelConfig& model) {
  const Heads heads = heads_of(model, defaults_of(path).model);
  return fmt::format("{} weights are read; new: {}; left out: {}", declared_weights(model).size() - heads.drawn.size(), names_of(heads.drawn),
                     names_of(heads.left));
}

void require_same_head(const std::filesystem::path& path, const ModelConfig& model) {
  const std::shared_ptr<const Objective> kept = defaults_of(path).model.objective;
  const Objective &stored = *kept, &wanted = *model.objective;
  const bool leaves_modules = stored.writes_next_token() && wanted.writes_next_token() && wanted.depths() == 0;
  require(leaves_modules || (std::string_view(stored.name()) == wanted.name() && stored.classes().size() == wanted.classes().size()), Exit::config,
          "{}: its head is of train.objective = {} ({} classes), and the deck's of {} ({}); train.init_head=new reads the trunk, and draws the head "
          "or what is new of it",
          path.string(), stored.name(), stored.classes().size(), wanted.name(), wanted.classes().size());
}

}  // namespace gyr
