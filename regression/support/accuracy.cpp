// SPDX-License-Identifier: BSD-3-Clause
#include "regression/support/accuracy.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "regression/support/cases.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/pretrained/weights.hpp"
#include "src/verify/equality.hpp"

namespace gyr::testing {

namespace {

constexpr std::uint64_t orders = 16;
constexpr double rounding = 3e-6;  // a dozen successive roundings: no digits were lost on the way

const nlohmann::json& torch_errors() {
  static const nlohmann::json all = nlohmann::json::parse(std::ifstream(GYR_SOURCE_DIR "/regression/golden/huggingface_accuracy.json"));
  return all.at("errors");
}

// Sums of squares of the differences and of the reference values.
struct Squares {
  double difference = 0, length = 0;
  void add(const std::vector<double>& a, const std::vector<double>& b) {
    ensure(a.size() == b.size(), "{} values, but {} reference values", a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) difference += (a[i] - b[i]) * (a[i] - b[i]), length += b[i] * b[i];
  }
  double part() const { return difference == 0 ? 0 : std::sqrt(difference / length); }
};

// A permutation of the hidden channels. It gives the same model, but its sums are rounded differently. Seed 0 is the
// identity.
std::vector<Index> order_of(Index width, std::uint64_t seed) {
  std::vector<Index> order(width);
  std::iota(order.begin(), order.end(), Index(0));
  std::mt19937_64 random(seed);
  if (seed > 0) std::shuffle(order.begin(), order.end(), random);
  return order;
}

// Index in the original weight of element i of the permuted weight.
Index source(const Weight& w, Index i, const std::vector<Index>& order) {
  const auto among = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return w.name.find(name) != std::string::npos; });
  };
  const Index inner = w.shape.size() > 1 ? w.shape[1] : 1;
  if (among({"layernorm", ".o_proj.", ".out_proj.", ".down_proj."})) return order[i / inner] * inner + i % inner;
  const bool hidden = inner == Index(order.size()) && !among({"conv1d"});
  return hidden ? i / inner * inner + order[i % inner] : i;
}

// Gradients in fp32 of the model with permuted hidden channels, returned in the original order.
std::map<std::string, std::vector<double>> gradients_in_float(const Golden& g, std::uint64_t seed) {
  EngineConfig config;
  config.model = g.model;
  config.micro_batch_size = g.batch.batch, config.seq_length = g.batch.seq_length, config.micros = 1;
  Rig<float> rig(config, single_rank_grid(g.model.layers()));
  load_weights(g.folder, rig.engine);
  const auto order = order_of(g.model.hidden_size, seed);
  std::map<std::string, const Weight*> weights;
  for (const auto& p : rig.engine.stage().parameters().all()) {
    const Tensor1<float> mine = p->template vector<float>();
    const std::vector<float> before(mine.data(), mine.data() + p->weight.size());
    for (Index i = 0; i < p->weight.size(); ++i) mine(i) = before[source(p->weight, i, order)];
    weights[p->weight.name] = &p->weight;
  }
  rig.engine.gradients([&](int) { return g.batch; }, 1, 1);
  auto gradients = gathered_gradients(rig.engine);
  for (auto& [name, x] : gradients) {
    const std::vector<double> permuted = x;
    for (Index i = 0; i < Index(x.size()); ++i) x[source(*weights.at(name), i, order)] = permuted[i];
  }
  return gradients;
}

}  // namespace

std::vector<Accuracy> accuracies(const Golden& g) {
  std::map<std::string, Squares> kinds;
  for (std::uint64_t seed = 0; seed < orders; ++seed) {
    const auto ours = gradients_in_float(g, seed);
    for (const auto& [weight, exact] : g.twice.gradients) kinds[kind_of(weight)].add(ours.at(weight), exact);
  }
  const nlohmann::json& torch = torch_errors().at(g.name);
  std::vector<Accuracy> list;
  for (const auto& [kind, squares] : kinds) list.push_back({kind, squares.part(), torch.at(kind)});
  return list;
}

double accuracy_limit(const Accuracy& a) { return a.torch < rounding ? 1.7 * a.torch : a.torch; }

}  // namespace gyr::testing
