// SPDX-License-Identifier: BSD-3-Clause
// Automatic tensor-parallel sharding: dynamic programming over a chain of operators finds the optimum of an exhaustive
// search, and the chains of all models shard the weights as they are declared.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "modules/cost/flops.hpp"
#include "modules/model/model_chains.hpp"
#include "modules/objectives/objective.hpp"
#include "modules/settings/weight_pattern.hpp"
#include "modules/weights/placement.hpp"
#include "regression/support/cases.hpp"
#include "regression/support/closed_form.hpp"
#include "regression/support/golden.hpp"
#include "regression/support/random_chain.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/config/run_config.hpp"

namespace gyr::testing::operator_chain_suite {
namespace {

Ledger difference(Ledger a, const Ledger& b) {
  for (const auto& [key, traffic] : b) {
    Traffic& left = a[key];
    left.calls -= traffic.calls, left.bytes -= traffic.bytes;
    if (left == Traffic{}) a.erase(key);
  }
  return a;
}

using Costs = std::array<std::array<std::optional<LayoutCost>, tensor_states>, tensor_states>;

void keep_less(std::optional<LayoutCost>& best, const LayoutCost& cost) {
  if (!best || cost < *best) best = cost;
}

// Exhaustive search: each operator takes each of its passages, and between two operators a tensor takes every path of
// moves that visits no state twice.
class Trial {
 public:
  explicit Trial(const LayoutRules& rules) : rules_(rules) {}

  Costs costs(const OperatorChain& chain, const Channels& begin) {
    std::vector<Stop> stops{{paths(begin, chain), {}}};
    for (std::size_t i = 0; i < chain.size(); ++i) {
      stops.back().onward = passages(chain, i);
      stops.push_back({paths(chain[i].out, chain), {}});
    }
    Costs best;
    for (int state = 0; state < tensor_states; ++state)
      if (TensorState(state) != TensorState::units || can_divide(begin, rules_.ranks)) go(stops, 0, state, {}, best[state]);
    return best;
  }
  Index tried() const { return tried_; }

 private:
  using Ends = std::array<std::optional<LayoutCost>, tensor_states>;
  struct Onward {
    int in, out;
    LayoutCost cost;
  };
  // Between two operators: the lowest cost from each state to each state, and the transitions of the next operator.
  struct Stop {
    Costs moves;
    std::vector<Onward> onward;
  };

  Costs paths(const Channels& channels, const OperatorChain& chain) {
    Costs least;
    for (int state = 0; state < tensor_states; ++state) walk(channels, chain, state, {}, 1u << state, least[state]);
    return least;
  }
  void walk(const Channels& channels, const OperatorChain& chain, int state, const LayoutCost& cost, unsigned seen, Ends& ends) {
    keep_less(ends[state], cost);
    for (const LayoutMove& move : moves())
      if (int(move.from) == state && (seen >> int(move.to) & 1u) == 0)
        if (const auto step = step_of(move, channels, rules_))
          walk(channels, chain, int(move.to), cost + cost_of(*step, chain, rules_), seen | 1u << int(move.to), ends);
  }

  std::vector<Onward> passages(const OperatorChain& chain, std::size_t i) {
    std::vector<Onward> all;
    for (const OperatorPassage& p : chain[i].passages)
      if (const auto step = step_of(p, chain[i], int(i), rules_)) all.push_back({int(p.in), int(p.out), cost_of(*step, chain, rules_)});
    std::vector<Costs> branches;
    for (const OperatorChain& branch : chain[i].branches) branches.push_back(costs(branch, chain[i].in));
    for (int in = 0; in < tensor_states && !branches.empty(); ++in)
      for (int out = 0; out < tensor_states; ++out)
        if (std::all_of(branches.begin(), branches.end(), [&](const Costs& b) { return b[in][out].has_value(); })) {
          LayoutCost sum;
          for (const Costs& b : branches) sum = sum + *b[in][out];
          all.push_back({in, out, sum});
        }
    return all;
  }

  void go(const std::vector<Stop>& stops, std::size_t i, int state, const LayoutCost& cost, Ends& ends) {
    for (int to = 0; to < tensor_states; ++to) {
      if (!stops[i].moves[state][to]) continue;
      const LayoutCost there = cost + *stops[i].moves[state][to];
      if (i + 1 == stops.size()) ++tried_, keep_less(ends[to], there);
      for (const Onward& next : stops[i].onward)
        if (next.in == to) go(stops, i + 1, next.out, there + next.cost, ends);
    }
  }

  LayoutRules rules_;
  Index tried_ = 0;
};

TEST(operator_chain, dynamic_programming_finds_the_exhaustive_optimum) {
  std::mt19937 random(seed_of_run());
  Index compared = 0, tried = 0;
  for (int number = 0; number < 150; ++number) {
    const OperatorChain chain = RandomChain(random).chain(RandomChain(random).channels(), 1 + number % 8);
    LayoutRules rules{.ranks = int(random() % 8) + 1};
    rules.gathers_again = random() % 2 == 0;
    Trial trial(rules);
    const Costs expected = trial.costs(chain, chain.front().in);
    tried += trial.tried();
    for (int from = 0; from < tensor_states; ++from)
      for (int to = 0; to < tensor_states; ++to) {
        const TensorState begin = TensorState(from), end = TensorState(to);
        const auto found = lay_out(chain, rules, {&begin, 1}, {&end, 1});
        ASSERT_EQ(found.has_value(), expected[from][to].has_value()) << "chain " << number << ", " << name_of(begin) << " to " << name_of(end);
        if (!found) continue;
        ++compared;
        EXPECT_TRUE(found->cost == *expected[from][to])
            << "chain " << number << ", " << name_of(begin) << " to " << name_of(end) << " on " << rules.ranks << " ranks";
        LayoutCost sum;
        for_each_step(chain, *found, [&](const OperatorChain& of, const LayoutStep& step) { sum = sum + cost_of(step, of, rules); });
        EXPECT_TRUE(sum == found->cost) << "the steps do not add up to the cost of the layout, chain " << number;
      }
  }
  std::printf("%td layouts are optimal among %td candidates\n", compared, tried);
}

// The model with one layer of each type, on each side of the encoder's end.
ModelConfig shortened(ModelConfig m) {
  std::string pattern;
  std::size_t begin = 0;
  for (const char symbol : m.pattern) {
    if (pattern.find(symbol, begin) == std::string::npos) pattern += symbol;
    if (symbol == encoder_end || symbol == tower_end) begin = pattern.size();
  }
  m.pattern = pattern, m.lora = {};
  return m;
}

bool names(const OperatorWeight& pattern, const Weight& w) { return pattern.name == w.name || (pattern.alike > 1 && matches(pattern.name, w.name)); }

// All models: the test cases (also widened and narrowed), the golden models of other classes, and the example decks.
const std::vector<std::pair<std::string, ModelConfig>>& models() {
  static const auto all = [] {
    std::vector<std::pair<std::string, ModelConfig>> list;
    for (const Case& c : cases()) {
      list.emplace_back(c.name, c.model);
      list.emplace_back(c.name + ", wide", widened(c));
      list.emplace_back(c.name + ", narrow", narrowed(c));
    }
    for (const auto* names : {&golden_names(), &golden_family_names()})
      for (const std::string& name : *names) list.emplace_back(name, golden(name).model);
    for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(GYR_SOURCE_DIR) / "input"))
      if (file.path().extension() == ".yaml") {
        Deck deck = Deck::read(file.path());
        list.emplace_back(file.path().stem(), read_run_config(deck).model);
      }
    return list;
  }();
  return all;
}

ModelChains chains_of(const ModelConfig& m) {
  ModelChains all;
  const auto add = [&](const ModelChains& more) { all.insert(all.end(), more.begin(), more.end()); };
  add(embedding_chains(m));
  for (Index i = 0; i < m.layers(); ++i) add(layer_type(m.pattern[i]).chains(config_of_layer(m, i), fmt::format("model.layers.{}", i)));
  add(head_chains(m));
  const std::string ahead = m.objective->head_layers();
  for (Index k = 0; k < m.objective->depths(); ++k) {
    const std::string name = fmt::format("mtp.{}", k);
    const Index each = Index(ahead.size()) / m.objective->depths();
    add(mtp_chains(m, name));
    for (Index i = 0; i < each; ++i) add(layer_type(ahead[k * each + i]).chains(m, fmt::format("{}.layers.{}", name, i)));
  }
  return all;
}

struct FoundSplit {
  OperatorWeight weight;
  WeightSplit split;
};
std::vector<FoundSplit> splits_of(const ModelChains& chains, const LayoutRules& rules, bool sequence) {
  std::vector<FoundSplit> found;
  for (const ModelChain& chain : chains)
    for_each_step(chain.operators, lay_out(chain, rules, sequence), [&](const OperatorChain& of, const LayoutStep& step) {
      if (step.op >= 0)
        for (const OperatorWeight& w : of[step.op].weights) found.push_back({w, step.split});
    });
  return found;
}

bool same(const Placement& a, const Placement& b) {
  return a.shape == b.shape && std::equal(a.boxes.begin(), a.boxes.end(), b.boxes.begin(), b.boxes.end(), [](const Held& x, const Held& y) {
           return x.box.first == y.box.first && x.box.count == y.box.count && x.local == y.local && x.copy().ranks == y.copy().ranks &&
                  x.copy().rank == y.copy().rank;
         });
}

Coordinates tensor_rank(int ranks, int rank) {
  Coordinates at;
  at[Axis::tensor] = {ranks, rank};
  return at;
}

bool can_place(const Weight& w, int ranks) { return !w.sharding(Axis::tensor) || can_divide({0, w.sharding(Axis::tensor)->runs}, ranks); }

// Each weight is placed as declared on every rank. If the declared sharding does not support this number of ranks, no
// unit may be split either.
void expect_declared_shardings(const std::string& name, const ModelConfig& m, int ranks, bool sequence) {
  const std::vector<Weight> declared = declared_weights(m);
  const std::vector<FoundSplit> found = splits_of(chains_of(m), {.ranks = ranks}, sequence);
  const bool by_hand = std::all_of(declared.begin(), declared.end(), [&](const Weight& w) { return can_place(w, ranks); });
  for (const Weight& w : declared) {
    const auto mine = std::find_if(found.begin(), found.end(), [&](const FoundSplit& f) { return names(f.weight, w); });
    const bool named = mine != found.end();
    if (m.objective->gives_values() && w.name == "score.weight") continue;  // one rank holds the row of a scalar head
    ASSERT_TRUE(named || !w.sharding(Axis::tensor)) << name << ": no operator has " << w.name << ", which is sharded";
    if (!named) continue;  // an unsharded weight outside of the chains
    Weight derived = w;
    derived.shardings = mine->weight.shardings(mine->split);
    EXPECT_EQ(mine->weight.shape, w.shape) << name << ": " << w.name;
    for (int rank = 0; rank < ranks; ++rank) {
      const Placement there = place(derived, tensor_rank(ranks, rank));  // throws if a unit would be split
      const bool as_declared = !by_hand || same(there, place(w, tensor_rank(ranks, rank)));
      EXPECT_TRUE(as_declared) << name << ": " << w.name << " on rank " << rank << " of " << ranks;
    }
  }
  for (const FoundSplit& f : found)
    EXPECT_TRUE(f.weight.name.ends_with("lm_head.bias") || f.weight.name.ends_with("classifier.bias") ||
                std::any_of(declared.begin(), declared.end(), [&](const Weight& w) { return names(f.weight, w); }))
        << name << ": no declared weight has the name " << f.weight.name;
}

TEST(operator_chain, every_layer_type_has_a_chain) {
  for (const LayerType& type : layer_types()) EXPECT_FALSE(type.chains(named("T2").model, "layer").empty()) << type.name;
}

TEST(operator_chain, derived_sharding_matches_declared_sharding_of_every_model) {
  Index models_tried = 0;
  for (const auto& [name, model] : models()) {
    for (int ranks = 2; ranks <= 8; ++ranks)
      for (const bool sequence : {false, true}) expect_declared_shardings(name, shortened(model), ranks, sequence);
    ++models_tried;
  }
  std::printf("%td models\n", models_tried);
}

// Tensor-parallel traffic of one micro-batch, forward and backward, by the plan of a step. grid/traffic.cpp compares
// the plan with a real step.
Ledger planned(const ModelConfig& m, int ranks, bool sequence, Index length) {
  const auto step = [&](int micros) {
    EngineConfig config;
    config.model = m, config.precision = DType::bf16, config.micros = micros, config.seq_length = length;
    config.source_length = has_encoder(m) ? length : 0;
    Layout layout = grid_layout(1, 1, ranks, {{0, m.layers()}});
    layout.sequence = sequence;
    return ledger_of(plan_rank(config, layout, 0).traffic);
  };
  return difference(step(2), step(1));
}

// Traffic of `rows` rows, by the layouts found for the chains.
Ledger declared(const ModelChains& chains, LayoutRules rules, bool sequence, Index rows) {
  Ledger ledger;
  for (const ModelChain& chain : chains)
    for_each_step(chain.operators, lay_out(chain, rules, sequence), [&](const OperatorChain&, const LayoutStep& step) {
      for (const auto* transfers : {&step.forward, &step.backward})
        for (const RowTransfer& t : *transfers) {
          Traffic& sum = ledger[{t.ranks == rules.ranks ? "tensor" : fmt::format("tensor/{}", t.ranks), t.operation}];
          ++sum.calls, sum.bytes += Index(t.handed_over() * double(rows)) * (t.wide ? rules.wide : rules.narrow);
        }
    });
  return ledger;
}

// The same model with one more layer of the type at index `layer`.
ModelConfig with_another(ModelConfig m, std::size_t layer) {
  m.pattern.insert(layer, 1, m.pattern[layer]);
  return m;
}

// If every rank has the full residual stream, gradients of unsharded weights are complete on all ranks. Exceptions:
// weights between the stream and heads or experts (latents, routing).
void expect_complete_gradients(const ModelChains& chains, const LayoutRules& rules, const std::string& where) {
  for (const ModelChain& chain : chains)
    for_each_step(chain.operators, lay_out(chain, rules, false), [&](const OperatorChain& of, const LayoutStep& step) {
      if (step.op < 0 || step.split != WeightSplit::nowhere || of[step.op].weights.empty()) return;
      const std::string& name = of[step.op].name;
      EXPECT_TRUE(step.in == TensorState::full || name == "routing" || name.find("latents") != std::string::npos) << name << ", " << where;
    });
}

TEST(operator_chain, derived_traffic_matches_dry_run_traffic) {
  Index compared = 0, all_of_it = 0;
  for (const auto& [name, all] : models()) {
    const ModelConfig m = shortened(all);
    if (m.linear == LinearLayers::ternary) continue;       // their scales are exchanged besides the operators (grid.draws)
    if (reads_neighbours(m) || reads_images(m)) continue;  // so are neighbours (grid.retrieval) and images (grid.vision)
    const std::vector<Weight> weights = declared_weights(m);
    for (int ranks = 2; ranks <= 8; ++ranks) {
      if (!std::all_of(weights.begin(), weights.end(), [&](const Weight& w) { return can_place(w, ranks); })) continue;
      for (const bool sequence : {false, true}) {
        const Index length = 2 * ranks;
        const Ledger base = planned(m, ranks, sequence, length);
        if (std::string_view(m.objective->name()) == "next_token") {
          EXPECT_EQ(declared(chains_of(m), {.ranks = ranks}, sequence, length), base) << name << ", full model on " << ranks << " ranks";
          ++all_of_it;
        }
        for (std::size_t i = 0; i < m.pattern.size(); ++i) {
          const char symbol = m.pattern[i];
          if (symbol == encoder_end) continue;
          const std::string where = fmt::format("{}, layer {} on {} ranks{}", name, symbol, ranks, sequence ? ", sequence parallel" : "");
          const Ledger counted = difference(planned(with_another(m, i), ranks, sequence, length), base);
          const ModelChains chains = layer_type(symbol).chains(m, "model.layers.1");
          const LayoutRules rules{.ranks = ranks};
          EXPECT_EQ(declared(chains, rules, sequence, length), counted) << where;
          if (!sequence) expect_complete_gradients(chains, rules, where);
          ++compared;
        }
      }
    }
  }
  std::printf("%td layers, %td full models\n", compared, all_of_it);
}

// If the latents have fewer dimensions than the residual stream, reducing their gradients (or gathering them) in place
// of the stream would send less.
TEST(operator_chain, reducing_latents_would_send_less) {
  const auto found = std::find_if(models().begin(), models().end(), [](const auto& m) { return m.first == "deepseek-v3"; });
  ASSERT_NE(found, models().end());
  for (const bool sequence : {false, true}) {
    ModelChain chain = layer_type('L').chains(found->second, "model.layers.0").at(0);
    const LayoutRules rules{.ranks = 8};
    const Index now = lay_out(chain, rules, sequence).cost.sent;
    const auto free_all = [](const auto& self, OperatorChain& operators) -> void {
      for (Operator& op : operators) {
        if (op.name == "latents") op.passages = over_rows("", op.in, op.out).passages;
        for (OperatorChain& branch : op.branches) self(self, branch);
      }
    };
    free_all(free_all, chain.operators);
    const Index then = lay_out(chain, rules, sequence).cost.sent;
    std::printf("bytes per token over all ranks, sequence parallelism %s: %td, could be %td\n", sequence ? "on" : "off", now, then);
    EXPECT_LT(3 * then, 2 * now);
  }
}

}  // namespace
}  // namespace gyr::testing::operator_chain_suite
