// SPDX-License-Identifier: BSD-3-Clause
#include "regression/planner/published.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>
#include <sstream>

#include "src/train/engine_config.hpp"

namespace gyr::testing {

namespace {

struct Source {
  const char *name, *cluster;
  Index seq_length, vocabulary;
  const char* changes;            // deck sections of all steps of this source
  const char* earlier = nullptr;  // cluster file of the same machine with the software of an earlier paper
};

// Cluster, sequence length, vocabulary and recomputation of each publication.
const std::vector<Source>& sources() {
  static const std::vector<Source> list{
      {"sc21", "a100-selene", 2048, 51200, "activation: {recompute: full}\n"},
      {"korthikanti-full", "a100-selene-2022", 2048, 51200, "activation: {recompute: full}\n", "a100-selene"},
      {"korthikanti-selective", "a100-selene-2022", 2048, 51200, "activation: {recompute: selective}\n", "a100-selene"},
      {"mcore", "h100", 4096, 131072, "activation: {recompute: selective}\n"},
      {"mcore-strong", "h100", 4096, 131072, "activation: {recompute: selective}\n"},
      {"megascale-base", "ampere-megascale", 2048, 64000, "activation: {recompute: selective}\n"},
  };
  return list;
}

const Source& source_of(const std::string& name) {
  return *std::find_if(sources().begin(), sources().end(), [&](const Source& s) { return name == s.name; });
}

int number(const std::string& cell) { return cell == "-" ? 0 : std::stoi(cell); }

// Section `parallel` of the deck. The sources sc21 and korthikanti-full use neither sequence parallelism nor a sharded
// optimizer.
std::string parallel_of(const PublishedStep& s, const Way& way) {
  const bool early = s.source == "sc21" || s.source == "korthikanti-full";
  std::string stages;
  const int count = s.pipeline * way.virtual_stages;
  for (int i = 0; i < count; ++i) stages += fmt::format("{}{}", i > 0 ? ", " : "", 2 * s.layers / count);
  return fmt::format(
      "parallel:\n  tensor: {}\n  pipeline: {}\n  virtual_stages: {}\n  layers: [{}]\n  sequence: {}\n  shard: {}\n  reduce_dtype: {}\n  bucket: "
      "{}\n",
      s.tensor, s.pipeline, way.virtual_stages, stages, !early && s.tensor > 1, early ? "none" : "optimizer", early ? "bf16" : "full", 128);
}

}  // namespace

std::vector<PublishedStep> published_steps() {
  std::ifstream in(std::string(GYR_SOURCE_DIR) + "/regression/planner/published_steps.csv");
  std::vector<PublishedStep> steps;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#' || line.starts_with("source,")) continue;
    std::vector<std::string> c;
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) c.push_back(cell);
    steps.push_back({c.at(0), std::stod(c[1]), number(c[2]), number(c[3]), number(c[4]), number(c[5]), number(c[6]), number(c[7]), number(c[8]),
                     number(c[9]), number(c[10]), number(c[11]), std::stod(c.at(12))});
  }
  return steps;
}

namespace {

std::string file_of(const char* cluster) { return fmt::format("{}/input/clusters/{}.yaml", GYR_SOURCE_DIR, cluster); }

}  // namespace

std::string cluster_file(const std::string& source) { return file_of(source_of(source).cluster); }

std::string earlier_cluster_file(const std::string& source) {
  const char* earlier = source_of(source).earlier;
  return earlier == nullptr ? "" : file_of(earlier);
}

std::vector<Way> ways_of(const PublishedStep& s) {
  if (s.micro_batch > 0) return {{s.micro_batch, s.virtual_stages}};
  std::vector<Way> ways;
  for (const int micro_batch : {1, 2, 4})
    for (int v = 1; v <= s.layers / s.pipeline; ++v) {
      const bool six = s.source == "megascale-base";
      const int micros = s.batch / s.data / micro_batch;
      if (s.layers % (s.pipeline * v) != 0 || s.batch % (s.data * micro_batch) != 0) continue;
      if (six ? v != 6 : (s.pipeline == 1 ? v > 1 : v > 1 && micros % s.pipeline != 0)) continue;
      ways.push_back({micro_batch, v});
    }
  return ways;
}

RunConfig run_of(const PublishedStep& s, const Way& way) {
  const Source& source = source_of(s.source);
  const std::string text = fmt::format(
      "model:\n  pattern: \"*- x {}\"\n  vocab_size: {}\n  hidden_size: {}\n  positions: {}\n  norm: layer\n  tie_word_embeddings: true\n"
      "  attention: {{num_heads: {}, num_kv_heads: {}, head_dim: {}, rotary_fraction: 0, bias: true}}\n"
      "  mlp: {{intermediate_size: {}, activation: gelu_tanh, gated: false, bias: true}}\n"
      "train: {{precision: bf16, global_batch_size: {}, micro_batch_size: {}, seq_length: {}}}\n{}{}",
      s.layers, source.vocabulary, s.hidden, source.seq_length, s.heads, s.heads, s.hidden / s.heads, 4 * s.hidden, s.batch, way.micro_batch,
      source.seq_length, source.changes, parallel_of(s, way));
  Deck deck = Deck::parse(text, s.name());
  RunConfig run = read_run_config(deck);
  deck.finish();
  return run;
}

namespace {

// True if the first pipeline stage, which stores the most activations, fits into the memory of a device.
bool fits(const EngineConfig& config, const Layout& layout, const Cluster& cluster) {
  EngineConfig shorter = config;
  shorter.micros = std::min(config.micros, 2 * int(layout.stages.size()));
  return double(predicted_capacity(shorter, layout, 0).total()) <= cluster.device.memory;
}

}  // namespace

PlannedStep::PlannedStep(const PublishedStep& step, const Cluster& cluster) : published_(step) {
  const std::vector<Way> ways = ways_of(step);
  for (const Way& way : ways) {
    const RunConfig run = run_of(step, way);
    const Layout layout = layout_of(run, step.devices);
    const EngineConfig config = engine_config(run, layout);
    if (ways.size() > 1 && !fits(config, layout, cluster)) continue;
    all_.push_back({way, config, layout, std::make_shared<StagePlans>(config, layout)});
  }
  ensure(!all_.empty(), "{} does not fit into the device memory with any micro-batch and number of virtual stages", step.name());
  ways_ = all_;
}

std::size_t PlannedStep::best(const Cluster& cluster) const {
  std::size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < ways_.size(); ++i)
    if (const double seconds = predict(*ways_[i].plans, ways_[i].config, ways_[i].layout, cluster).seconds; seconds < least)
      least = seconds, best = i;
  return best;
}

Prediction PlannedStep::prediction(const Cluster& cluster) const {
  const Planned& way = ways_[best(cluster)];
  return predict(*way.plans, way.config, way.layout, cluster);
}

double PlannedStep::seconds(const Cluster& cluster) const { return prediction(cluster).seconds; }

std::string PlannedStep::fastest(const Cluster& cluster) const {
  const Way& way = ways_[best(cluster)].way;
  return fmt::format("{} / {}", way.micro_batch, way.virtual_stages);
}

void PlannedStep::predict_seconds(const Cluster& cluster) {
  ways_ = all_;
  ways_ = {all_[best(cluster)]};
}

double error_of(const PlannedStep& step, const Cluster& cluster) { return step.seconds(cluster) / step.published().seconds - 1; }

namespace {

constexpr int constants = Cluster::constants;
using Vector = std::array<double, constants>;
using Matrix5 = std::array<Vector, constants>;

constexpr double Cluster::Fit::*const constant[constants] = {&Cluster::Fit::gemms, &Cluster::Fit::fused, &Cluster::Fit::memory, &Cluster::Fit::links,
                                                             &Cluster::Fit::step};
// Largest values. The published steps are too short to determine the rate of fused attention, which is 3 % of their FLOPs
// or less. 0.66 is the fastest causal forward that is published for the H100: 648 of 989 TFLOP/s at 128 channels per head
// and 16,384 tokens (Shah et al., "FlashAttention-3", 2024).
constexpr double most[constants] = {0.95, 0.66, 1, 1, 10};

Cluster moved(Cluster c, const Vector& logarithms) {
  for (int i = 0; i < constants; ++i) c.fit.*constant[i] = std::clamp(c.fit.*constant[i] * std::exp(logarithms[i]), 1e-3, most[i]);
  return c;
}

std::vector<double> residuals(const Cluster& c, const std::vector<const PlannedStep*>& steps) {
  std::vector<double> all;
  for (const PlannedStep* step : steps) all.push_back(std::log(1 + error_of(*step, c)));
  return all;
}

double square(const std::vector<double>& x) { return std::inner_product(x.begin(), x.end(), x.begin(), 0.0); }

// Solves a x = b, where a is positive definite.
Vector solved(Matrix5 a, Vector b) {
  for (int i = 0; i < constants; ++i)
    for (int row = i + 1; row < constants; ++row) {
      const double factor = a[row][i] / a[i][i];
      for (int column = i; column < constants; ++column) a[row][column] -= factor * a[i][column];
      b[row] -= factor * b[i];
    }
  for (int i = constants - 1; i >= 0; --i) {
    for (int column = i + 1; column < constants; ++column) b[i] -= a[i][column] * b[column];
    b[i] /= a[i][i];
  }
  return b;
}

}  // namespace

// Levenberg-Marquardt steps on the logarithms of the constants.
Cluster fitted(Cluster cluster, const std::vector<const PlannedStep*>& steps, int rounds) {
  cluster = moved(cluster, {});  // within the ranges of the constants
  double damping = 1e-2;
  std::vector<double> r = residuals(cluster, steps);
  for (int round = 0; round < rounds; ++round) {
    constexpr double little = 0.03;
    std::vector<std::vector<double>> slopes;
    for (int i = 0; i < constants; ++i) {
      Vector by{};
      by[i] = cluster.fit.*constant[i] * std::exp(little) > most[i] ? -little : little;
      std::vector<double> other = residuals(moved(cluster, by), steps);
      for (std::size_t k = 0; k < r.size(); ++k) other[k] = (other[k] - r[k]) / by[i];
      slopes.push_back(std::move(other));
    }
    for (int attempt = 0; attempt < 4; ++attempt, damping *= 10) {
      Matrix5 a{};
      Vector b{};
      for (int i = 0; i < constants; ++i) {
        b[i] = -std::inner_product(slopes[i].begin(), slopes[i].end(), r.begin(), 0.0);
        for (int j = 0; j < constants; ++j) a[i][j] = std::inner_product(slopes[i].begin(), slopes[i].end(), slopes[j].begin(), 0.0);
        a[i][i] += damping * (a[i][i] + 1e-3);
      }
      const Cluster next = moved(cluster, solved(a, b));
      if (std::vector<double> better = residuals(next, steps); square(better) < square(r)) {
        cluster = next, r = std::move(better), damping /= 10;
        break;
      }
    }
  }
  return cluster;
}

}  // namespace gyr::testing
