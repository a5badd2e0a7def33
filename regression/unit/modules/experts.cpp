// SPDX-License-Identifier: BSD-3-Clause
// A model with one MoE layer against plain loops in double: its loss, and every gradient against central differences of
// the training objective. The objective is the loss plus the router's balancing terms. Routers are random, or have
// biases that send all tokens to two experts.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "modules/layers/expert_capacity.hpp"
#include "modules/model/layer.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::experts_suite {
namespace {

using Values = std::map<std::string, std::vector<double>>;
using Row = std::vector<double>;

constexpr Index batch = 2, seq_length = 7;
constexpr int micros = 2;
const std::string layer = "model.layers.0.", block = layer + "feed_forward.";

Row times(const Values& w, const std::string& name, const Row& x) {
  const std::vector<double>& m = w.at(name);
  Row y(m.size() / x.size(), 0.0);
  for (std::size_t i = 0; i < m.size(); ++i) y[i / x.size()] += m[i] * x[i % x.size()];
  return y;
}

Row normed(const ModelConfig& c, const Values& w, const std::string& name, const Row& x) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  Row y = x;
  for (std::size_t i = 0; i < x.size(); ++i) y[i] *= w.at(name)[i] / std::sqrt(squares / double(x.size()) + c.rms_norm_eps);
  return y;
}

void add_swiglu(const Values& w, const std::string& name, const Row& h, double weight, Row& y) {
  const Row gate = times(w, name + ".gate_proj.weight", h);
  Row inner = times(w, name + ".up_proj.weight", h);
  for (std::size_t i = 0; i < gate.size(); ++i) inner[i] *= gate[i] / (1 + std::exp(-gate[i]));
  const Row out = times(w, name + ".down_proj.weight", inner);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += weight * out[i];
}

// Router statistics of a sequence: tokens per expert, summed normalized scores per expert, and summed squares of
// log-sum-exp (z-loss).
struct Balance {
  std::vector<double> count, mean_probability;
  double z = 0;
};

// Output of the layer for one row x. Fills `chosen` with the top-k experts if it is empty, and skips the experts in
// `dropped`.
Row through(const ModelConfig& c, const Values& w, const Row& x, std::vector<Index>& chosen, const std::vector<Index>& dropped, Balance& reported,
            Row* weights_of_chosen = nullptr) {
  const Routing& r = c.moe.routing;
  const Row h = normed(c, w, layer + "input_layernorm.weight", x), logits = times(w, block + "gate.weight", h);
  Row scores;
  double exps = 0, total = 0, weights = 0;
  for (const double l : logits) exps += std::exp(l);
  for (const double l : logits) scores.push_back(r.score == Routing::softmax ? std::exp(l) / exps : 1 / (1 + std::exp(-l)));
  for (const double s : scores) total += s;
  if (chosen.empty()) {
    const auto value = [&](Index e) { return scores[e] + (c.moe.bias ? w.at(block + "gate.e_score_correction_bias")[e] : 0); };
    chosen.resize(scores.size());
    std::iota(chosen.begin(), chosen.end(), 0);
    std::stable_sort(chosen.begin(), chosen.end(), [&](Index a, Index b) { return value(a) > value(b); });
    chosen.resize(r.top_k);
  }
  reported.count.resize(scores.size()), reported.mean_probability.resize(scores.size()), reported.z += std::log(exps) * std::log(exps);
  for (std::size_t e = 0; e < scores.size(); ++e) reported.mean_probability[e] += scores[e] / total;
  for (const Index e : chosen) weights += scores[e], reported.count[e] += 1;
  const bool latent = c.moe.latent_size > 0;
  const Row read = latent ? times(w, block + "fc1_latent_proj.weight", h) : h;
  Row mixed(read.size(), 0.0);
  for (const Index e : chosen) {
    const double weight = r.scale * scores[e] / (r.normalize ? weights : 1);
    if (weights_of_chosen) weights_of_chosen->push_back(weight);
    if (std::count(dropped.begin(), dropped.end(), e) == 0) add_swiglu(w, fmt::format("{}experts.{}", block, e), read, weight, mixed);
  }
  if (latent) mixed = times(w, block + "fc2_latent_proj.weight", mixed);
  Row y = x;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += mixed[i];
  if (c.moe.shared_intermediate_size > 0) add_swiglu(w, block + "shared_experts", h, 1, y);
  return y;
}

struct Losses {
  double loss = 0, trained_by = 0;
};

// For each row: its chosen experts, and those of them that drop it.
struct Choices {
  std::vector<std::vector<Index>> chosen, dropped;

  double count_dropped() const {
    double sum = 0;
    for (const auto& of_row : dropped) sum += double(of_row.size());
    return sum;
  }
};

Row embedded(const ModelConfig& c, const Values& w, Token token) {
  const auto row = w.at("model.embed_tokens.weight").begin() + token * c.hidden_size;
  Row x(row, row + c.hidden_size);
  for (double& v : x) v *= c.embedding_multiplier;
  return x;
}

// Chooses experts for the rows of a sequence. With a capacity C, each expert drops all but C of its rows: the later ones, or those of least weight.
void choose(const ModelConfig& c, const Values& w, const std::vector<Row>& rows, Choices& choices) {
  struct Choice {
    std::size_t row;
    double weight;
  };
  std::map<Index, std::vector<Choice>> of_expert;
  const std::size_t first = choices.chosen.size();
  Balance unused;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Row weights;
    through(c, w, rows[i], choices.chosen.emplace_back(), {}, unused, &weights);
    choices.dropped.emplace_back();
    for (std::size_t k = 0; k < weights.size(); ++k) of_expert[choices.chosen.back()[k]].push_back({first + i, weights[k]});
  }
  if (c.moe.capacity_factor == 0) return;
  const double even = double(rows.size()) * double(c.moe.routing.top_k) / double(c.moe.experts);
  const auto max_rows = std::size_t(std::max(1.0, std::ceil(c.moe.capacity_factor * even)));
  for (auto& [expert, list] : of_expert) {
    if (c.moe.drop_policy == DropPolicy::probability)
      std::stable_sort(list.begin(), list.end(), [](const Choice& a, const Choice& b) { return a.weight > b.weight; });
    for (std::size_t i = max_rows; i < list.size(); ++i) choices.dropped[list[i].row].push_back(expert);
  }
}

// Loss and training objective over all micro-batches. Fills `choices` if it is empty.
Losses losses_of(const ModelConfig& c, const Values& w, const std::vector<MicroBatch>& batches, Choices& choices) {
  double sum = 0, labels = 0, balance = 0;
  std::size_t row = 0;
  const bool choose_here = choices.chosen.empty();
  for (const MicroBatch& m : batches)
    for (Index b = 0; b < batch; ++b) {
      Balance reported;
      std::vector<Row> rows;
      for (Index i = b * seq_length; i < (b + 1) * seq_length; ++i) rows.push_back(embedded(c, w, m.tokens[i]));
      if (choose_here) choose(c, w, rows, choices);
      for (Index i = b * seq_length; i < (b + 1) * seq_length; ++i, ++row) {
        const Row y = through(c, w, rows[std::size_t(i - b * seq_length)], choices.chosen[row], choices.dropped[row], reported);
        Row logits = times(w, "lm_head.weight", normed(c, w, "model.final_layernorm.weight", y));
        if (m.labels[i] == ignored_label) continue;
        double exps = 0;
        for (double& l : logits) exps += std::exp(l *= c.lm_head_multiplier);
        sum += std::log(exps) - logits[m.labels[i]], labels += 1;
      }
      const double T = double(seq_length);
      double even = 0;
      for (Index e = 0; e < c.moe.experts; ++e) even += reported.count[e] * reported.mean_probability[e] / T;
      balance += c.moe.aux_loss * even * double(c.moe.experts) / (double(c.moe.routing.top_k) * T) + c.moe.z_loss * reported.z / T;
    }
  return {sum / labels, sum / labels + balance / double(batch * micros)};
}

ModelConfig model_of(const Routing& rule, bool bias, Index shared) {
  ModelConfig c = named("T2").model;
  c.pattern = "E", c.hidden_size = 6, c.vocab_size = 11, c.pad_token_id = -1;
  c.moe.experts = 5, c.moe.intermediate_size = 3, c.moe.shared_intermediate_size = shared;
  c.moe.routing = rule, c.moe.bias = bias;
  c.moe.aux_loss = 0.7, c.moe.z_loss = rule.score == Routing::softmax ? 0.2 : 0;
  return c;
}

// Token counts must be constant within a central difference, so expert choices stay those of the unchanged weights.
void expect_plain(const ModelConfig& c) {
  EngineConfig config;
  config.model = c, config.micro_batch_size = batch, config.seq_length = seq_length, config.micros = micros;
  Rig<double> rig(config, single_rank_grid(1));
  std::vector<MicroBatch> batches;
  for (int i = 0; i < micros; ++i) batches.push_back(micro_batch(i * batch, batch, seq_length, c.vocab_size));
  Values w;
  for (const auto& p : rig.engine.stage().parameters().all()) {
    const auto x = p->vector<double>();
    if (p->weight.name.ends_with("correction_bias"))
      for (Index e = 0; e < p->size(); ++e) x(e) = e == 1 || e == 4 ? 100 : 0;
    w[p->weight.name].assign(x.data(), x.data() + x.extent(0));
  }
  Choices choices;
  const Losses plain = losses_of(c, w, batches, choices);
  const StepResult step = rig.engine.gradients([&](int i) { return batches[i]; }, micros, 1);
  EXPECT_NEAR(step.loss, plain.loss, 1e-12);
  EXPECT_EQ(step.dropped_choices, choices.count_dropped());
  for (const auto& [name, gradient] : gathered_gradients(rig.engine))
    for (std::size_t i = 0; i < gradient.size(); i += std::max<std::size_t>(1, gradient.size() / 9)) {
      const double at = w[name][i], h = 1e-3;
      const auto moved = [&](double by) {
        w[name][i] = at + by;
        return losses_of(c, w, batches, choices).trained_by;
      };
      const double slope = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
      w[name][i] = at;
      EXPECT_NEAR(gradient[i], slope, 1e-6 * std::abs(slope) + 1e-10) << name << " at " << i;
    }
}

TEST(experts, loss_and_gradients_match_reference_loops) {
  for (const Routing::Score score : {Routing::softmax, Routing::sigmoid})
    for (const bool normalize : {true, false})
      for (const bool all_to_two : {false, true})
        for (const Index top_k : {1, 2, 5}) {
          SCOPED_TRACE(fmt::format("score {}{}{}, {} of 5", int(score), normalize ? " normalized" : "", all_to_two ? " biased" : "", top_k));
          expect_plain(model_of({score, top_k, 1, 1, normalize, 1.7}, all_to_two, top_k == 2 ? 4 : 0));
        }
}

// Latents narrower and wider than the stream, and experts that drop choices.
TEST(experts, latent_experts_match_reference_loops) {
  for (const Index latent : {1, 4, 9})
    for (const bool all_to_two : {false, true})
      for (const double factor : {0.0, 0.5}) {
        SCOPED_TRACE(fmt::format("latent of {}, factor {}{}", latent, factor, all_to_two ? " biased" : ""));
        ModelConfig c = model_of({Routing::sigmoid, 2, 1, 1, true, 1.7}, all_to_two, 4);
        c.moe.latent_size = latent, c.moe.capacity_factor = factor;
        expect_plain(c);
      }
}

// Capacities below, at and above an even share, and sufficient for all choices, with both drop policies.
TEST(experts, full_experts_drop_last_or_lightest_choices) {
  for (const DropPolicy policy : {DropPolicy::position, DropPolicy::probability})
    for (const bool all_to_two : {false, true})
      for (const double factor : {0.01, 0.5, 1.0, 1.3, 9.0}) {
        SCOPED_TRACE(fmt::format("policy {}, factor {}{}", int(policy), factor, all_to_two ? " biased" : ""));
        ModelConfig c = model_of({Routing::sigmoid, 2, 1, 1, true, 1.7}, all_to_two, 4);
        c.moe.capacity_factor = factor, c.moe.drop_policy = policy;
        expect_plain(c);
      }
}

TEST(experts, evaluation_drops_no_tokens) {
  EngineConfig config;
  config.model = model_of({Routing::softmax, 2, 1, 1, true, 1}, true, 0);
  config.micro_batch_size = batch, config.seq_length = seq_length, config.micros = 1;
  const auto source = [&](int) { return micro_batch(0, batch, seq_length, config.model.vocab_size); };
  const auto scored = [&](double factor) {
    config.model.moe.capacity_factor = factor;
    Rig<double> rig(config, single_rank_grid(1));
    return std::pair(rig.engine.evaluate(source, 1), rig.engine.gradients(source, 1, 1).loss);
  };
  const auto all = scored(0), some = scored(0.3);
  EXPECT_EQ(all.first, some.first);
  EXPECT_GT(std::abs(all.second - some.second), 1e-4);
}

// For any number of context-parallel ranks and any token order, each rank keeps the choices of its rows that a single
// rank would keep. Many weights are equal up to rounding errors, which depend on the rank.
TEST(experts, capacity_does_not_depend_on_context_parallelism) {
  std::mt19937 random(seed_of_run());
  std::uniform_real_distribution<double> rounding(1 - 1e-6, 1 + 1e-6);
  const auto from = [&](Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random); };
  for (int draw = 0; draw < 200; ++draw) {
    MoeConfig c;
    c.experts = from(2, 6), c.routing.top_k = from(1, 2), c.capacity_factor = 0.1 * double(from(1, 15));
    c.drop_policy = from(0, 1) ? DropPolicy::position : DropPolicy::probability;
    const Index sequences = from(1, 3), ranks = from(2, 5), full = from(ranks, 23), K = c.routing.top_k;
    const SequenceOrder order = from(0, 1) ? SequenceOrder::zigzag : SequenceOrder::contiguous;
    SequenceLayout one{sequences, full};
    SharedChoices all;
    for (Index i = 0; i < sequences * full; ++i) {
      const Index first = from(0, c.experts - 1);
      for (Index k = 0; k < K; ++k) all.chosen.push_back(std::int32_t((first + k) % c.experts)), all.weights.push_back(double(from(1, 4)));
    }
    const std::vector<std::int32_t> expected = experts_within_capacity(c, one, all);
    SequenceLayout shared = one;
    shared.seq_length = shared_length(order, full, ranks), shared.order = order, shared.ranks = ranks, shared.full_tokens = full;
    SharedChoices by_rank;
    const auto visit = [&](Index rank, const auto& visitor) {
      shared.rank = rank;
      for (Index b = 0; b < sequences; ++b)
        for (Index t = 0; t < shared.seq_length; ++t) visitor(b * shared.seq_length + t, b, shared.place(t));
    };
    for (Index rank = 0; rank < ranks; ++rank)
      visit(rank, [&](Index, Index b, Index place) {
        for (Index k = 0; k < K; ++k) {
          const bool pads = place >= full;  // padding rows, whose choices must not count
          by_rank.chosen.push_back(pads ? 0 : all.chosen[(b * full + place) * K + k]);
          by_rank.weights.push_back(pads ? 9 : rounding(random) * all.weights[(b * full + place) * K + k]);
        }
      });
    for (Index rank = 0; rank < ranks; ++rank) {
      shared.rank = rank;
      const std::vector<std::int32_t> mine = experts_within_capacity(c, shared, by_rank);
      visit(rank, [&](Index row, Index b, Index place) {
        for (Index k = 0; k < K; ++k)
          EXPECT_EQ(mine[row * K + k], place < full ? expected[(b * full + place) * K + k] : std::int32_t(c.experts)) << draw << " rank " << rank;
      });
    }
  }
}

// Full experts keep their largest weights. Among weights that are equal up to rounding errors, they keep the earliest.
TEST(experts, rounding_errors_of_weights_change_no_drop) {
  std::mt19937 random(seed_of_run());
  const auto from = [&](Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random); };
  std::uniform_real_distribution<double> rounding(1 - 1e-6, 1 + 1e-6);
  Index dropped = 0;
  for (int draw = 0; draw < 500; ++draw) {
    const Index experts = from(1, 6), capacity = from(1, 9), levels = from(1, 5);
    std::vector<double> level, exact, rounded;
    for (Index i = 0; i < levels; ++i) level.push_back(double(from(0, 9)) * std::pow(10, from(-6, 0)));
    std::vector<std::int32_t> chosen;
    for (Index i = from(1, 60); i > 0; --i) {
      chosen.push_back(std::int32_t(from(0, experts - 1))), exact.push_back(level[std::size_t(from(0, levels - 1))]);
      rounded.push_back(exact.back() * rounding(random));
    }
    const std::vector<bool> kept = kept_choices(DropPolicy::probability, experts, capacity, chosen, exact);
    EXPECT_EQ(kept_choices(DropPolicy::probability, experts, capacity, chosen, rounded), kept) << "draw " << draw;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      Index before = 0;  // choices of the same expert that take precedence
      for (std::size_t j = 0; j < chosen.size(); ++j) before += chosen[j] == chosen[i] && (exact[j] > exact[i] || (exact[j] == exact[i] && j < i));
      EXPECT_EQ(kept[i], before < capacity) << "draw " << draw << ", choice " << i;
      dropped += !kept[i];
    }
  }
  EXPECT_GT(dropped, 1000);
}

// A diverging run reaches its check for finite values: NaN and infinite weights are dropped or kept without an error.
TEST(experts, non_finite_weights_fill_experts_up_to_capacity) {
  std::mt19937 random(seed_of_run());
  const auto from = [&](Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random); };
  const double inf = std::numeric_limits<double>::infinity(), values[] = {std::nan(""), inf, 0, 0.25, 0.5};
  for (int draw = 0; draw < 500; ++draw) {
    const Index capacity = from(1, 40), choices = from(1, 80);
    std::vector<double> weights;
    for (Index i = 0; i < choices; ++i) weights.push_back(values[from(0, 4)]);
    const std::vector<std::int32_t> chosen(weights.size(), 0);
    const std::vector<bool> kept = kept_choices(DropPolicy::probability, 1, capacity, chosen, weights);
    EXPECT_EQ(std::count(kept.begin(), kept.end(), true), std::min(capacity, choices)) << "draw " << draw;
  }
}

// Loss, drops and gradients of six sequences in micro-batches of `size`.
template <class T>
StepOutcome outcome_of(const ModelConfig& model, Index length, Index size) {
  EngineConfig config;
  config.model = model, config.micro_batch_size = size, config.seq_length = length, config.micros = int(6 / size);
  Rig<T> rig(in<T>(config), single_rank_grid(model.layers()));
  const auto source = [&](int i) { return micro_batch(i * size, size, length, model.vocab_size); };
  StepOutcome outcome{rig.engine.gradients(source, config.micros, 1), {}};
  outcome.gradients = gathered_gradients(rig.engine);
  return outcome;
}

template <class T>
void expect_same_drops(const ModelConfig& model, Index length, double& dropped) {
  const StepOutcome one = outcome_of<T>(model, length, 1);
  for (const Index size : {2, 3, 6}) {
    const Errors errors = errors_of(one, outcome_of<T>(model, length, size));
    EXPECT_TRUE(within_limits(errors, dtype_of<T>()))
        << size << " sequences per micro-batch: loss off by " << errors.loss << ", gradients by " << errors.worst_gradient();
  }
  dropped += one.result.dropped_choices;
}

// Sequences of few distinct tokens have equal rows. The last bits of their weights depend on the position in a GEMM.
TEST(experts, tied_choices_drop_alike_in_any_micro_batch) {
  std::mt19937 random(seed_of_run());
  const auto from = [&](Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random); };
  double dropped = 0;
  for (int draw = 0; draw < 40; ++draw) {
    const Index experts = from(2, 12), length = from(5, 40);
    ModelConfig c =
        model_of({from(0, 1) ? Routing::sigmoid : Routing::softmax, from(1, std::min<Index>(experts, 3)), 1, 1, from(0, 1) > 0, 1.7}, false, 0);
    c.pattern = std::vector<std::string>{"E", "EE", "-E", "WE"}[std::size_t(from(0, 3))], c.window.size = 1;
    c.moe.experts = experts, c.hidden_size = from(4, 40), c.vocab_size = from(3, 5);
    c.moe.capacity_factor = 0.1 * double(from(2, 14)), c.moe.drop_policy = DropPolicy::probability;
    SCOPED_TRACE(fmt::format("draw {}: {} experts, {} tokens of {}, hidden_size {}", draw, experts, length, c.vocab_size, c.hidden_size));
    expect_same_drops<double>(c, length, dropped);
    expect_same_drops<float>(c, length, dropped);
  }
  EXPECT_GT(dropped, 1000);
}

// The router bias is not a trained weight: without bias updates, a training step does not change it.
TEST(experts, router_bias_is_not_trained_by_gradient) {
  EngineConfig config;
  config.model = model_of({Routing::softmax, 2, 1, 1, true, 1}, true, 0);
  config.micro_batch_size = batch, config.seq_length = seq_length, config.micros = 1;
  Rig<double> rig(config, single_rank_grid(1));
  const auto& all = rig.engine.stage().parameters().all();
  const auto parameter_values = [](const Parameter& p) {
    return std::vector<double>(p.vector<double>().data(), p.vector<double>().data() + p.size());
  };
  std::vector<std::vector<double>> before;
  for (const auto& p : all) before.push_back(parameter_values(*p));
  rig.engine.train([&](int) { return micro_batch(0, batch, seq_length, config.model.vocab_size); }, 1, 1, 1e-2);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool bias = all[i]->weight.name.ends_with("correction_bias");
    EXPECT_EQ(all[i]->trained, !bias) << all[i]->weight.name;
    EXPECT_EQ(before[i] == parameter_values(*all[i]), bias) << all[i]->weight.name;
  }
}

std::vector<double> biases_of(Engine& engine) {
  for (const auto& p : engine.stage().parameters().all())
    if (p->weight.name.ends_with("correction_bias")) return {p->vector<double>().data(), p->vector<double>().data() + p->size()};
  return {};
}

// Against plain loops: tokens of all micro-batches count, also those without labels. A recomputed forward counts no
// token again.
TEST(experts, router_bias_rises_for_underused_experts) {
  constexpr double rate = 0.01;
  for (const Routing::Score score : {Routing::softmax, Routing::sigmoid})
    for (const Index top_k : {1, 2, 5})
      for (const bool again : {false, true}) {
        EngineConfig config;
        config.model = model_of({score, top_k, 1, 1, true, 1}, true, 0);
        config.model.moe.bias_update_rate = rate, config.model.moe.aux_loss = again ? 0.7 : 0, config.model.moe.z_loss = 0;
        config.micro_batch_size = batch, config.seq_length = seq_length, config.micros = micros;
        if (again) config.recompute.all = recompute_of("full");
        Rig<double> rig(config, single_rank_grid(1));
        std::vector<MicroBatch> batches;
        for (int i = 0; i < micros; ++i) batches.push_back(micro_batch(i * batch, batch, seq_length, config.model.vocab_size));
        Values w;
        for (const auto& p : rig.engine.stage().parameters().all()) {
          const auto x = p->vector<double>();
          if (p->weight.name.ends_with("correction_bias"))
            for (Index e = 0; e < p->size(); ++e) x(e) = 0.02 * double(e);
          w[p->weight.name].assign(x.data(), x.data() + x.extent(0));
        }
        Choices choices;
        losses_of(config.model, w, batches, choices);
        std::vector<double> chosen(config.model.moe.experts, 0.0);
        for (const auto& row : choices.chosen)
          for (const Index e : row) chosen[e] += 1;
        const double mean = double(batch * seq_length * micros * top_k) / double(config.model.moe.experts);
        const StepResult result = rig.engine.train([&](int i) { return batches[i]; }, micros, 1, 1e-2);
        EXPECT_DOUBLE_EQ(result.expert_load, *std::max_element(chosen.begin(), chosen.end()) / mean);
        const std::vector<double> moved = biases_of(rig.engine);
        for (Index e = 0; e < config.model.moe.experts; ++e) {
          const double step = chosen[e] < mean ? rate : chosen[e] > mean ? -rate : 0;
          EXPECT_EQ(moved[e], 0.02 * double(e) + step) << "expert " << e << " chosen by " << chosen[e] << " tokens, mean " << mean;
        }
      }
}

TEST(experts, router_bias_stays_when_frozen_or_skipped) {
  EngineConfig config;
  config.model = model_of({Routing::softmax, 2, 1, 1, true, 1}, true, 0);
  config.model.moe.bias_update_rate = 0.1;
  config.micro_batch_size = batch, config.seq_length = seq_length, config.micros = 1;
  const auto source = [&](int) { return micro_batch(0, batch, seq_length, config.model.vocab_size); };
  for (const bool frozen : {false, true}) {
    config.optimizer.frozen = frozen ? std::vector<std::string>{"*correction_bias"} : std::vector<std::string>{};
    Rig<double> rig(config, single_rank_grid(1));
    const auto before = biases_of(rig.engine);
    StepOrder order{1, 1e-2};
    order.loss_limit = -1;
    rig.engine.train(source, 1, order);
    EXPECT_EQ(biases_of(rig.engine), before);
    rig.engine.evaluate(source, 1);
    rig.engine.train(source, 1, 2, 1e-2);
    EXPECT_EQ(biases_of(rig.engine) == before, frozen);
  }
}

// With learning rate 0, a router that sends all tokens to two experts comes to use all experts evenly.
TEST(experts, bias_updates_balance_a_skewed_router) {
  EngineConfig config;
  config.model = model_of({Routing::sigmoid, 2, 1, 1, true, 1}, true, 0);
  config.model.moe.bias_update_rate = 0.01, config.model.vocab_size = 200;  // a large vocabulary gives many different rows
  config.micro_batch_size = batch, config.seq_length = 100, config.micros = 1;
  Rig<double> rig(config, single_rank_grid(1));
  for (const auto& p : rig.engine.stage().parameters().all())
    if (p->weight.name.ends_with("correction_bias")) assign(rig.engine.device(), *p, [](Index e) { return e == 1 || e == 4 ? 1.0 : 0.0; });
  const auto source = [&](int) { return micro_batch(0, batch, 100, config.model.vocab_size); };
  double first = 0, last = 0;
  for (int step = 1; step <= 150; ++step) {
    last = rig.engine.train(source, 1, step, 0).expert_load;
    if (step == 1) first = last;
  }
  EXPECT_EQ(first, 2.5);  // two of five experts get all tokens
  EXPECT_LT(last, 1.3);
}

TEST(experts, step_flops_equal_plan_for_any_routing) {
  for (const DType precision : {DType::f64, DType::f32, DType::bf16})
    for (const bool all_to_two : {false, true}) {
      EngineConfig config;
      config.model = model_of({Routing::softmax, 2, 1, 1, true, 1}, all_to_two, 0);
      config.micro_batch_size = batch, config.seq_length = 40, config.micros = 1, config.precision = precision;
      Grid dry = Grid::dry_run(grid_layout(1, 1, 1, {{0, 1}}), 0);
      Timers timers(engine_timer_names());
      Engine plan(config, dry, nullptr, timers);
      AnyRig rig(config, single_rank_grid(1));
      for (const auto& p : rig.engine.stage().parameters().all())
        if (p->weight.name.ends_with("correction_bias")) assign(rig.engine.device(), *p, [](Index e) { return e == 1 || e == 4 ? 100.0 : 0.0; });
      const auto source = [&](int) { return micro_batch(0, batch, 40, config.model.vocab_size); };
      plan.device().clear_work(), rig.engine.device().clear_work();
      plan.gradients(source, 1, 1), rig.engine.gradients(source, 1, 1);
      EXPECT_EQ(plan.device().flops(), rig.engine.device().flops());
    }
}

}  // namespace
}  // namespace gyr::testing::experts_suite
