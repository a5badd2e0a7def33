// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/config/optimizer_config.hpp"

#include <algorithm>

#include "modules/settings/weight_pattern.hpp"

namespace gyr {

bool OptimizerConfig::freezes(const Weight& w) const {
  return matches_any(frozen, w.name) || (lora && !w.of_adapter && !matches_any(lora.also, w.name));
}

Trained OptimizerConfig::trained() const {
  return [c = *this](const Weight& w) { return w.learns && !c.freezes(w); };
}

OptimizerConfig read_optimizer(Section& s, const std::vector<std::string>& weights) {
  OptimizerConfig c;
  c.beta1 = s.get("beta1", 0.9, "Adam beta1: decay rate of the first moment").at_least(0).below(1);
  c.beta2 = s.get("beta2", 0.95, "Adam beta2: decay rate of the second moment").at_least(0).below(1);
  c.epsilon = s.get("epsilon", 1e-8, "Adam epsilon: added to the root of the second moment").positive();
  c.weight_decay = s.get("weight_decay", 0.1, "AdamW weight decay (decoupled) of matrices").at_least(0);
  c.clip_grad = s.get("clip_grad", 1.0, "maximum global gradient norm (gradient clipping); 0: no clipping").at_least(0);
  const std::vector<std::string> patterns =
      s.get("groups", std::vector<std::string>{},
            "parameter groups: patterns of names, e.g. [\"*.A_log\", \"*embed_tokens*\"]; of several that match a weight only the last one counts");
  const std::vector<double> lrs =
      s.get("group_lrs", std::vector<double>{}, "factor on the learning rate of each group; to freeze, see frozen").positive();
  const std::vector<double> weight_decays =
      s.get("group_weight_decays", std::vector<double>{}, "factor on the weight decay of each group").at_least(0);
  require(lrs.empty() || lrs.size() == patterns.size(), Exit::config, "optimizer.group_lrs has {} numbers for {} groups", lrs.size(),
          patterns.size());
  require(weight_decays.empty() || weight_decays.size() == patterns.size(), Exit::config,
          "optimizer.group_weight_decays has {} numbers for {} groups", weight_decays.size(), patterns.size());
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const double lr = lrs.empty() ? 1 : lrs[i];
    c.groups.push_back({patterns[i], lr, weight_decays.empty() ? 1 : weight_decays[i]});
  }
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
