// SPDX-License-Identifier: BSD-3-Clause
#include "src/engine/config/width_transfer.hpp"

#include <algorithm>
#include <cmath>

#include "modules/model/model_config.hpp"

namespace gyr {

bool is_hidden_matrix(const Weight& w) {
  const bool embedding = w.name.find("embed_") != w.name.npos;
  return w.shape.size() == 2 && w.decays && !w.of_adapter && !w.of_output && !embedding;
}

double WidthTransfer::of_init(const Weight& w) const { return base > 0 && is_hidden_matrix(w) ? std::sqrt(double(base) / double(w.shape[1])) : 1; }

double WidthTransfer::of_rate(const Weight& w, std::string_view rule) const {
  const bool by_element = rule == "adamw" || rule == "lion";  // updates of a size that does not depend on the gradient's
  return base > 0 && by_element && is_hidden_matrix(w) ? double(base) / double(w.shape[1]) : 1;
}

void apply(const WidthTransfer& transfer, ModelConfig& m) {
  if (!transfer) return;
  const double logits = double(transfer.base) / double(m.hidden_size);
  // A model that was trained with width transfer has its factor already.
  require(m.lm_head_multiplier == 1 || m.lm_head_multiplier == logits, Exit::config,
          "optimizer.width_base = {} sets the factor on the logits to {:g}, but model.lm_head_multiplier is {:g}; remove one of them", transfer.base,
          logits, m.lm_head_multiplier);
  const std::pair<const char*, double> multipliers[] = {
      {"embedding_multiplier", m.embedding_multiplier},         {"attention.in_multiplier", m.attention.in_multiplier},
      {"attention.key_multiplier", m.attention.key_multiplier}, {"attention.out_multiplier", m.attention.out_multiplier},
      {"mamba.in_multiplier", m.mamba.in_multiplier},           {"mamba.out_multiplier", m.mamba.out_multiplier},
      {"mlp.gate_multiplier", m.mlp.gate_multiplier},           {"mlp.down_multiplier", m.mlp.down_multiplier}};
  for (const auto& [key, value] : multipliers)
    require(value == 1, Exit::config,
            "optimizer.width_base = {}: model.{} is {:g}, and fixed multipliers are another form of width transfer; set it to 1, or set "
            "optimizer.width_base: 0",
            transfer.base, key, value);
  for (const double factor : m.mamba.multipliers)
    require(factor == 1, Exit::config,
            "optimizer.width_base = {}: model.mamba.multipliers contains {:g}, and fixed multipliers are another form of width transfer; set them to "
            "1, or set optimizer.width_base: 0",
            transfer.base, factor);
  m.lm_head_multiplier = logits;
}

}  // namespace gyr
