// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/config/optimizer_config.hpp"

#include <algorithm>
#include <map>

#include "modules/settings/weight_pattern.hpp"
#include "src/base/quantity.hpp"

namespace gyr {

bool OptimizerConfig::freezes(const Weight& w) const {
  return matches_any(frozen, w.name) || (lora && !w.of_adapter && !matches_any(lora.also, w.name));
}

Trained OptimizerConfig::trained() const {
  return [c = *this](const Weight& w) { return w.learns && !c.freezes(w); };
}

ParameterGroup OptimizerConfig::group_of(const Weight& w) const {
  ParameterGroup found;
  for (const ParameterGroup& g : groups)
    if (matches(g.pattern, w.name)) found = g;
  const RuleOfWeight of_weight = (found.rule ? found.rule : rule)->of(w);
  found.lr_factor *= of_weight.lr_factor * width.of_rate(w, of_weight.rule->name());
  return found;
}

const UpdateRule& OptimizerConfig::rule_of(const Weight& w) const {
  const Rule of_group = group_of(w).rule;
  return *(of_group ? of_group : rule)->of(w).rule;
}

std::vector<Content> OptimizerConfig::stored_with(const Weight& w) const {
  std::vector<Content> all;
  for (const std::string_view state : rule_of(w).states()) all.push_back(Content::state(state));
  all.push_back(Content::master);
  return all;
}

std::size_t OptimizerConfig::fewest_states() const {
  std::size_t fewest = rules().front()->states().size();
  for (const UpdateRule* r : rules()) fewest = std::min(fewest, r->states().size());
  return fewest;
}

double OptimizerConfig::fewest_values_moved() const {
  double fewest = rules().front()->values_moved();
  for (const UpdateRule* r : rules()) fewest = std::min(fewest, r->values_moved());
  return fewest;
}

std::vector<const UpdateRule*> OptimizerConfig::rules() const {
  std::vector<const UpdateRule*> all = rule->rules();
  for (const ParameterGroup& g : groups)
    if (g.rule)
      for (const UpdateRule* each : g.rule->rules()) all.push_back(each);
  return all;
}

namespace {

// Declares the settings of all rules.
std::map<std::string, Rule> read_rules(Section& s) {
  std::map<std::string, Rule> rules;
  const std::vector<RuleType>& types = rule_types();
  const NamedRule named = [&](const std::string& name) {
    Rule& rule = rules[name];
    if (!rule) rule = std::find_if(types.begin(), types.end(), [&](const RuleType& type) { return type.name == name; })->read(s, named);
    return rule;
  };
  for (const RuleType& type : types) named(type.name);
  return rules;
}

// Factors or rules of parameter groups: one for each group, or none at all.
void check_count(const char* key, std::size_t count, const char* what, std::size_t groups) {
  require(count == 0 || count == groups, Exit::config, "optimizer.{} has {} for {}", key, counted(Index(count), what),
          counted(Index(groups), "group"));
}

std::vector<ParameterGroup> read_groups(Section& s, const std::map<std::string, Rule>& rules, const std::vector<std::string>& names) {
  const std::vector<std::string> patterns =
      s.get("groups", std::vector<std::string>{},
            "parameter groups: patterns of names, e.g. [\"*.A_log\", \"*embed_tokens*\"]; of several that match a weight only the last one counts");
  const std::vector<double> lrs =
      s.get("group_lrs", std::vector<double>{}, "factor on the learning rate of each group; to freeze, see frozen").positive();
  const std::vector<double> weight_decays =
      s.get("group_weight_decays", std::vector<double>{}, "factor on the weight decay of each group").at_least(0);
  const std::vector<std::string> group_rules =
      s.get("group_rules", std::vector<std::string>{}, "update rule of each group, instead of optimizer.name").one_of(names);
  check_count("group_lrs", lrs.size(), "number", patterns.size());
  check_count("group_weight_decays", weight_decays.size(), "number", patterns.size());
  check_count("group_rules", group_rules.size(), "rule", patterns.size());
  std::vector<ParameterGroup> groups;
  for (std::size_t i = 0; i < patterns.size(); ++i)
    groups.push_back({patterns[i], lrs.empty() ? 1 : lrs[i], weight_decays.empty() ? 1 : weight_decays[i],
                      group_rules.empty() ? nullptr : rules.at(group_rules[i])});
  return groups;
}

}  // namespace

OptimizerConfig read_optimizer(Section& s, const std::vector<std::string>& weights) {
  OptimizerConfig c;
  std::vector<std::string> names;
  std::string help = "update rule of the weights";
  for (const RuleType& type : rule_types()) names.push_back(type.name), help += fmt::format("; {}: {}", type.name, type.help);
  const std::string name = s.get("name", "adamw", help).one_of(names);
  const std::map<std::string, Rule> rules = read_rules(s);
  c.rule = rules.at(name);
  c.weight_decay = s.get("weight_decay", 0.1, "weight decay (decoupled) of matrices").at_least(0);
  c.width.base = s.get("width_base", 0,
                       "width transfer (muP): hidden_size of the model that the settings were tuned on; hidden matrices of fan-in n get initial std "
                       "* sqrt(base / n) and, with adamw and lion, lr * base / n; logits * base / hidden_size; 0: off")
                     .at_least(0)
                     .at_most(Index(1) << 24)
                     .effect(Effect::function);
  c.clip_grad = s.get("clip_grad", 1.0, "maximum global gradient norm (gradient clipping); 0: no clipping").at_least(0);
  c.groups = read_groups(s, rules, names);
  for (const UpdateRule* used : c.rules())
    require(!c.width || used->name() == "adamw" || used->name() == "lion" || used->name() == "muon", Exit::config,
            "optimizer.width_base = {}: width transfer is not defined for the rule {}; use adamw, lion or muon, or set it to 0", c.width.base,
            used->name());
  std::vector<std::string> patterns;
  for (const ParameterGroup& g : c.groups) patterns.push_back(g.pattern);
  c.frozen =
      s.get("frozen", std::vector<std::string>{}, "weights that are frozen (not trained): patterns of names, e.g. [\"model.layers.*.mamba.*\"]")
          .value();
  check_patterns("optimizer.groups", patterns, weights);
  check_patterns("optimizer.frozen", c.frozen, weights);
  require(c.frozen.empty() || !std::all_of(weights.begin(), weights.end(), [&](const auto& name) { return matches_any(c.frozen, name); }),
          Exit::config, "optimizer.frozen leaves no weight to train");
  return c;
}

}  // namespace gyr
