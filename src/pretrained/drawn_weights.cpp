// SPDX-License-Identifier: BSD-3-Clause
#include "src/pretrained/drawn_weights.hpp"

#include <algorithm>

namespace gyr {

namespace {

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

class InitialisedWeights final : public WeightSource {
 public:
  InitialisedWeights(std::unique_ptr<WeightSource> stored, std::vector<Weight> left, std::vector<Weight> drawn, std::uint64_t seed)
      : stored_(std::move(stored)), left_(std::move(left)), drawn_(std::move(drawn)), seed_(seed) {}

  std::string name() const override { return stored_->name(); }
  std::string key(const std::string& weight) const override { return find(weight) ? weight : stored_->key(weight); }
  std::vector<std::string> keys() const override {
    std::vector<std::string> keys = stored_->keys();
    for (const Weight& w : left_) std::erase(keys, stored_->key(w.name));
    for (const Weight& w : drawn_) keys.push_back(w.name);
    std::sort(keys.begin(), keys.end());
    return keys;
  }
  TensorReader open(const std::string& weight, DType wanted) const override {
    const Weight* const here = find(weight);
    return here ? drawn(*here, seed_) : stored_->open(weight, wanted);
  }
  void check(int rank, int ranks) const override { stored_->check(rank, ranks); }

 private:
  const Weight* find(const std::string& name) const {
    const auto found = std::find_if(drawn_.begin(), drawn_.end(), [&](const Weight& w) { return w.name == name; });
    return found == drawn_.end() ? nullptr : &*found;
  }

  std::unique_ptr<WeightSource> stored_;
  std::vector<Weight> left_, drawn_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<WeightSource> replace_with_initialised(std::unique_ptr<WeightSource> stored, std::vector<Weight> left, std::vector<Weight> drawn,
                                                       std::uint64_t seed) {
  return std::make_unique<InitialisedWeights>(std::move(stored), std::move(left), std::move(drawn), seed);
}

}  // namespace gyr
