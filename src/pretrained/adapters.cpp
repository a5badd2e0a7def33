// SPDX-License-Identifier: BSD-3-Clause
#include "src/pretrained/adapters.hpp"

#include <algorithm>
#include <cstring>

#include "modules/cost/flops.hpp"
#include "src/checkpoint/numbers.hpp"
#include "src/pretrained/drawn_weights.hpp"
#include "src/pretrained/pretrained.hpp"

namespace gyr {

namespace {

std::vector<double> values_of(const TensorReader& reader) {
  std::vector<std::byte> stored(std::size_t(elements(reader.shape) * size_of(reader.dtype)));
  reader.read(full_box(reader.shape), stored.data(), reader.shape, full_box(reader.shape));
  std::vector<double> values(std::size_t(elements(reader.shape)));
  convert_values(reader.dtype, stored.data(), Index(values.size()), values.data(), reader.name);
  return values;
}

// A weight W with its adapter: read() returns boxes of W + s B A.
struct Sum {
  TensorReader w;
  std::vector<double> a, b;  // LoRA matrices A, shape (r,K), and B, shape (N,r)
  Index rank;
  double scale;

  template <class S>
  void read(const BoxPair& part, S* data, const Shape& array) const {
    const Box &from = part.from, local = full_box(from.count);
    std::vector<std::byte> stored(std::size_t(elements(from.count) * size_of(w.dtype)));
    w.read(from, stored.data(), from.count, local);
    std::vector<S> values(std::size_t(elements(from.count)));
    convert_values(w.dtype, stored.data(), Index(values.size()), values.data(), w.name);
    if (rank > 0) add_gemm(from, values);
    box_runs(from.count, local, array, part.to, [&](Index at, Index to, Index count) { std::copy_n(values.data() + at, count, data + to); });
  }
  template <class S>
  void add_gemm(const Box& from, std::vector<S>& values) const {
    const Index columns = w.shape[1];
    std::vector<double> row(std::size_t(from.count[1]));
    for (Index i = 0; i < from.count[0]; ++i) {
      std::fill(row.begin(), row.end(), 0.0);
      for (Index r = 0; r < rank; ++r) {
        const double factor = scale * b[std::size_t((from.first[0] + i) * rank + r)];
        const double* const of_a = a.data() + r * columns + from.first[1];
        for (Index j = 0; j < from.count[1]; ++j) row[std::size_t(j)] += factor * of_a[j];
      }
      for (Index j = 0; j < from.count[1]; ++j) values[std::size_t(i * from.count[1] + j)] += S(row[std::size_t(j)]);
    }
  }
};

class MergedWeights final : public WeightSource {
 public:
  MergedWeights(std::unique_ptr<WeightSource> stored, const ModelConfig& model) : stored_(std::move(stored)), lora_(model.lora) {
    for (Weight& w : declared_weights(model)) weights_.push_back(std::move(w));
  }
  std::string name() const override { return stored_->name(); }
  std::string key(const std::string& weight) const override { return stored_->key(weight); }
  std::vector<std::string> keys() const override {
    std::vector<std::string> keys = stored_->keys();
    for (const Weight& w : weights_)
      if (w.of_adapter) std::erase(keys, stored_->key(w.name));
    return keys;
  }
  TensorReader open(const std::string& weight, DType wanted) const override {
    TensorReader w = stored_->open(weight, wanted);
    const auto found = std::find_if(weights_.begin(), weights_.end(), [&](const Weight& w) { return w.name == weight; });
    if (found == weights_.end() || !lora_.targets_weight(*found)) return w;
    return merged(w, stored_->open(adapter_a(*found, lora_).name, DType::f32), stored_->open(adapter_b(*found, lora_).name, DType::f32),
                  lora_.scale());
  }
  void check(int rank, int ranks) const override { stored_->check(rank, ranks); }

 private:
  std::unique_ptr<WeightSource> stored_;
  LoraConfig lora_;
  std::vector<Weight> weights_;
};

std::vector<std::string> names_of_adapters(const ModelConfig& model) {
  std::vector<std::string> names;
  for (const Weight& w : declared_weights(model))
    if (w.of_adapter) names.push_back(w.name);
  return names;
}

}  // namespace

namespace {

TensorReader reader_of(Sum&& of) {
  const TensorReader& w = of.w;
  TensorReader reader{w.name, w.dtype == DType::f64 ? DType::f64 : DType::f32, w.shape, {}};
  reader.read_parts = [sum = std::make_shared<const Sum>(std::move(of)), type = reader.dtype](std::span<const BoxPair> parts, void* data,
                                                                                              const Shape& array) {
    for (const BoxPair& part : parts) {
      if (type == DType::f64) sum->read(part, static_cast<double*>(data), array);
      else sum->read(part, static_cast<float*>(data), array);
    }
  };
  return reader;
}

}  // namespace

TensorReader merged(const TensorReader& w, const TensorReader& a, const TensorReader& b, double scale) {
  return reader_of({w, values_of(a), values_of(b), a.shape.at(0), scale});
}
TensorReader widened(const TensorReader& w) { return reader_of({w, {}, {}, 0, 0}); }

std::unique_ptr<WeightSource> merged_weights(std::unique_ptr<WeightSource> stored, const ModelConfig& model) {
  return std::make_unique<MergedWeights>(std::move(stored), model);
}

std::unique_ptr<WeightSource> open_adapted(const std::filesystem::path& path, const ModelConfig& model, std::uint64_t seed) {
  const ModelConfig stored = defaults_of(path).model;
  ModelConfig plain = model;
  plain.lora = {};
  if (!stored.lora && !model.lora) return open_weights(path, model);
  if (!stored.lora) {
    std::vector<Weight> drawn = declared_weights(model);
    std::erase_if(drawn, [](const Weight& w) { return !w.of_adapter; });
    return replace_with_initialised(open_weights(path, plain), {}, std::move(drawn), seed);
  }
  ModelConfig as_stored = model;
  as_stored.lora = stored.lora;
  if (!model.lora) return merged_weights(open_weights(path, as_stored), as_stored);
  require(stored.lora.rank == model.lora.rank && stored.lora.alpha == model.lora.alpha && names_of_adapters(as_stored) == names_of_adapters(model),
          Exit::config,
          "{}: has adapters of rank {} with alpha {} on {} layers, but finetune.lora sets other ones; leave the keys out to continue with the stored "
          "ones, "
          "or set "
          "finetune.lora.rank=0 to continue from the merged weights",
          path.string(), stored.lora.rank, stored.lora.alpha, names_of_adapters(as_stored).size() / 2);
  return open_weights(path, model);
}

}  // namespace gyr
