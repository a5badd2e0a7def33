// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/config/recompute.hpp"

#include <algorithm>

namespace gyr {

Recompute recompute_of(std::string_view name) {
  static const Recompute policies[] = {{}, RecomputeCost::pass, RecomputeCost::gemm, RecomputeCost::sum};
  const auto found = std::find(std::begin(recompute_names), std::end(recompute_names), name);
  ensure(found != std::end(recompute_names), "{} is not a recompute policy", name);
  return policies[found - std::begin(recompute_names)];
}

RecomputeConfig read_recompute(Section& s, std::string_view pattern, const std::string& otherwise) {
  const std::vector<std::string> names(std::begin(recompute_names), std::end(recompute_names));
  RecomputeConfig c;
  c.all = recompute_of(s.get("recompute", otherwise,
                             "activation checkpointing, recomputed in the backward instead of saved: selective: norms, convolutions, gates; "
                             "attention_output: GEMMs too; full: all")
                           .one_of(names)
                           .value());
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  const std::vector<std::string> types =
      s.get("recompute_types", std::vector<std::string>{}, "other policies for layer types of model.pattern, e.g. [\"P:full\"]");
  for (const std::string& entry : types) {
    const bool formed = entry.size() > 2 && entry[1] == ':' && std::count(names.begin(), names.end(), entry.substr(2)) > 0;
    require(formed, Exit::config, "activation.recompute_types: '{}' is not of the form SYMBOL:POLICY, a layer type and one of {}", entry, known);
    require(pattern.find(entry[0]) != std::string_view::npos, Exit::config,
            "activation.recompute_types: '{}' is for layer type '{}', which model.pattern does not contain", entry, entry[0]);
    const bool fresh = c.by_type.try_emplace(entry[0], recompute_of(entry.substr(2))).second;
    require(fresh, Exit::config, "activation.recompute_types: two entries for layer type '{}'; keep one", entry[0]);
  }
  return c;
}

}  // namespace gyr
