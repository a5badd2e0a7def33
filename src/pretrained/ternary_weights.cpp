// SPDX-License-Identifier: BSD-3-Clause
#include "src/pretrained/ternary_weights.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/ops/ternary/ternary.hpp"
#include "modules/cost/flops.hpp"
#include "modules/weights/ternary_sections.hpp"
#include "src/checkpoint/numbers.hpp"

namespace gyr {

namespace {

constexpr Index piece_elements = Index(1) << 20;

struct ScaledRows {
  Index last;   // first row after the section
  float scale;  // s_w
};

std::vector<float> values_of(const TensorReader& w, const Box& box) {
  std::vector<std::byte> stored(std::size_t(elements(box.count) * size_of(w.dtype)));
  w.read(box, stored.data(), box.count, full_box(box.count));
  std::vector<float> values(std::size_t(elements(box.count)));
  convert_values(w.dtype, stored.data(), Index(values.size()), values.data(), w.name);
  return values;
}

double sum_of_magnitudes(const TensorReader& w, Index first, Index last) {
  const Index columns = w.shape[1], step = std::max<Index>(1, piece_elements / columns);
  double sum = 0;
  for (; first < last; first += step)
    for (const float x : values_of(w, {{first, 0}, {std::min(step, last - first), columns}})) sum += std::abs(double(x));
  return sum;
}

// W^ of the boxes that are read.
struct Quantized {
  TensorReader w;
  std::vector<ScaledRows> sections;

  template <class S>
  void read(const BoxPair& part, S* data, const Shape& array) const {
    const Box& from = part.from;
    std::vector<float> values = values_of(w, from);
    for (Index r = 0; r < from.count[0]; ++r) {
      const auto section = std::find_if(sections.begin(), sections.end(), [&](const ScaledRows& s) { return from.first[0] + r < s.last; });
      for (Index c = 0; c < from.count[1]; ++c) {
        float& x = values[std::size_t(r * from.count[1] + c)];
        x = ternary::weight_code(x, section->scale) / section->scale;
      }
    }
    box_runs(from.count, full_box(from.count), array, part.to,
             [&](Index at, Index to, Index count) { std::copy_n(values.data() + at, count, data + to); });
  }
};

class TernaryWeights final : public WeightSource {
 public:
  TernaryWeights(std::unique_ptr<WeightSource> stored, const ModelConfig& model) : stored_(std::move(stored)), weights_(declared_weights(model)) {}
  std::string name() const override { return stored_->name(); }
  std::string key(const std::string& weight) const override { return stored_->key(weight); }
  std::vector<std::string> keys() const override { return stored_->keys(); }
  TensorReader open(const std::string& weight, DType wanted) const override {
    TensorReader w = stored_->open(weight, wanted);
    const auto found = std::find_if(weights_.begin(), weights_.end(), [&](const Weight& w) { return w.name == weight; });
    if (found == weights_.end() || !found->adapts) return w;
    Quantized quantized{w, {}};
    Index first = 0;
    for (const Index rows : rows_of_sections(*found)) {
      const double sum = sum_of_magnitudes(w, first, first + rows);
      first += rows;
      quantized.sections.push_back({first, ternary::weight_scale<float>(sum, double(rows * w.shape[1]))});
    }
    const auto read = [quantized](std::span<const BoxPair> parts, void* data, const Shape& array) {
      for (const BoxPair& part : parts) quantized.read(part, static_cast<float*>(data), array);
    };
    return {w.name, DType::f32, w.shape, read};
  }
  void check(int rank, int ranks) const override { stored_->check(rank, ranks); }

 private:
  std::unique_ptr<WeightSource> stored_;
  std::vector<Weight> weights_;
};

}  // namespace

std::set<std::string> weights_of_ternary_layers(const ModelConfig& model) {
  std::set<std::string> names;
  if (model.linear == LinearLayers::ternary)
    for (const Weight& w : declared_weights(model))
      if (w.adapts) names.insert(w.name);
  return names;
}

std::unique_ptr<WeightSource> ternary_weights(std::unique_ptr<WeightSource> stored, const ModelConfig& model) {
  return std::make_unique<TernaryWeights>(std::move(stored), model);
}

}  // namespace gyr
