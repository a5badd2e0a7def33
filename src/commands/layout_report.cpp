// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/layout_report.hpp"

#include "modules/model/layer.hpp"
#include "modules/model/model_chains.hpp"
#include "modules/objectives/objective.hpp"
#include "src/base/precision.hpp"
#include "src/base/table.hpp"
#include "src/base/terminal.hpp"

namespace gyr {

namespace {

constexpr std::array<const char*, 7> act_words{"nothing",    "keep on one rank", "take own shard", "pad with zeros",
                                               "all-reduce", "all-gather",       "reduce-scatter"};
const char* word_of(Act act) { return act_words[std::size_t(act)]; }

// Bytes that one rank sends per token, averaged over the ranks.
std::string bytes_sent(const std::vector<RowTransfer>& transfers, const LayoutRules& rules) {
  double sum = 0;
  for (const RowTransfer& t : transfers) sum += double(t.sent()) / t.ranks * double(t.wide ? rules.wide : rules.narrow);
  return sum == 0 ? "" : fmt::format("{:.0f}", sum);
}

std::string differences(const LayoutCost& other, const LayoutCost& best, int ranks) {
  std::string text;
  const auto add_difference = [&](Index more, const char* what) {
    if (more != 0) text += fmt::format("{}{:+} {}", text.empty() ? "" : ", ", more, what);
  };
  add_difference((other.held - best.held) / ranks, "weights");
  add_difference((other.sent - best.sent) / ranks, "bytes");
  add_difference(other.calls - best.calls, "calls");
  if (text.empty()) add_difference((other.summed - best.summed) / ranks, "gradient elements reduced per step");
  if (text.empty()) add_difference((other.kept - best.kept) / ranks, "activation elements per token");
  return text.empty() ? "same cost" : text;
}

class ChainTable {
 public:
  ChainTable(Table& table, const ModelChain& chain, const LayoutRules& rules, bool sequence)
      : table_(table), chain_(chain), rules_(rules), sequence_(sequence), best_(lay_out(chain, rules, sequence)) {
    write(chain.operators, best_, 0);
  }

 private:
  void write(const OperatorChain& chain, const ChainLayout& layout, std::size_t depth) {
    const std::string indent(2 * depth, ' ');
    for (const LayoutStep& step : layout.steps) {
      const Operator* const op = step.op < 0 ? nullptr : &chain[step.op];
      const bool sum = op && !op->branches.empty();
      for (std::size_t i = 0; sum && i < step.branches.size(); ++i) {
        if (op->branches.size() > 1 && !op->branches[i].empty() && !op->branches[std::size_t(i == 0)].empty())
          table_.row({fmt::format("{}branch {}", indent, i + 1), "", "", "", "", "", ""});
        write(op->branches[i], step.branches[i], depth + 1);
      }
      table_.row({indent + (op ? op->name : move_of(step)), std::string(name_of(step.in)), std::string(name_of(step.out)),
                  op ? sharding_of(*op, step) : "", bytes_sent(step.forward, rules_), bytes_sent(step.backward, rules_),
                  op && !sum ? otherwise(*op, step) : ""});
    }
  }
  static std::string move_of(const LayoutStep& step) {
    if (step.move_backward == Act::keep) return word_of(step.move_forward);
    if (step.move_forward == Act::keep) return fmt::format("{} of the gradient", word_of(step.move_backward));
    return fmt::format("{}, gradient: {}", word_of(step.move_forward), word_of(step.move_backward));
  }
  static std::string sharding_of(const Operator& op, const LayoutStep& step) {
    if (op.weights.empty()) return "";
    return step.split == WeightSplit::nowhere ? "unsharded" : std::string(name_of(step.split));
  }
  // Extra cost of the best layout in which this operator uses other tensor states.
  std::string otherwise(const Operator& op, const LayoutStep& step) const {
    LayoutRules rules = rules_;
    rules.allowed = [&](const Operator& o, const OperatorPassage& p) { return &o != &op || p.in != step.in || p.out != step.out; };
    const auto other = try_lay_out(chain_, rules, sequence_);
    return other ? differences(other->cost, best_.cost, rules_.ranks) : "no alternative";
  }

  Table& table_;
  const ModelChain& chain_;
  LayoutRules rules_;
  bool sequence_;
  ChainLayout best_;
};

}  // namespace

std::string layout_report(const RunConfig& run) {
  const ModelConfig& m = run.model;
  const bool sequence = run.parallel.sequence;
  require(run.parallel.tensor > 1, Exit::usage,
          "--explain-layout shows how layers are sharded over tensor-parallel ranks, but parallel.tensor is 1; set it to 2 or more");
  const DType precision = precision_of(run.train.precision);
  const LayoutRules rules{.ranks = run.parallel.tensor, .narrow = size_of(precision), .wide = size_of(accumulator_of(precision))};
  std::string text = fmt::format(
      "Sharding of each kind of layer over parallel.tensor = {} ranks. Between layers the residual stream is {}.\nForward and backward: bytes that a "
      "rank sends per token. Alternative: extra cost per rank of the best other way for this operator.\nThe layout minimises weights per rank, then "
      "bytes, then collective calls.\n",
      rules.ranks, sequence ? "sharded by rows (parallel.sequence)" : "replicated");
  for (const auto& [key, count] : sharded_units(m))
    if (count % rules.ranks != 0 && rules.ranks % count != 0)
      text += fmt::format("A run rejects this number of ranks, because {} is {}; in this report, tensors that cannot be sharded are replicated.\n",
                          key, count);
  text = prose(text);
  const auto add = [&](const std::string& title, const ModelChains& chains) {
    for (const ModelChain& chain : chains) {
      Table table({{"operator"},
                   {"input state"},
                   {"output state"},
                   {"weights sharded by"},
                   {"forward B", true},
                   {"backward B", true},
                   {"alternative", false, 60}});
      const ChainTable written(table, chain, rules, sequence);
      text += fmt::format("\n{}: {}\n{}", title, chain.name, table.str());
    }
  };
  add("embedding", embedding_chains(m));
  std::string difference;
  for (const char symbol : m.pattern) {
    if (difference.find(symbol) != std::string::npos) continue;
    difference += symbol;
    add(fmt::format("{} {}", symbol, layer_type(symbol).name), layer_type(symbol).chains(m, "model.layers.N"));
  }
  if (m.objective->depths() > 0) add("multi-token prediction", mtp_chains(m, "mtp.N"));
  add("head", head_chains(m));
  return text;
}

}  // namespace gyr
