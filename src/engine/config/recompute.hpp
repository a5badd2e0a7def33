// SPDX-License-Identifier: BSD-3-Clause
// Activation checkpointing: what layers save in the forward for the backward, and what they recompute. Keys activation.*. Results are bit-identical.
//   none               everything is saved
//   selective          results of elementwise passes are recomputed: norms, convolutions, gates
//   attention_output   GEMM results too; attention and scans do not run twice (checkpoint placement of LightSeq)
//   full               everything except the input of each layer
#pragma once

#include <map>
#include <optional>

#include "modules/pass/frame.hpp"
#include "modules/settings/settings.hpp"

namespace gyr {

// Highest cost of results that are recomputed; nullopt: everything is saved.
using Recompute = std::optional<RecomputeCost>;

inline constexpr const char* recompute_names[] = {"none", "selective", "attention_output", "full"};
Recompute recompute_of(std::string_view name);  // `name`: one of recompute_names

struct RecomputeConfig {
  Recompute all = {};
  std::map<char, Recompute> by_type = {};  // policies of layer types that differ from `all`

  Recompute of(char symbol) const {
    const auto found = by_type.find(symbol);
    return found == by_type.end() ? all : found->second;
  }
  bool operator==(const RecomputeConfig&) const = default;
};

// `otherwise`: default of activation.recompute. Exit::config if a layer type is not in the model's pattern.
RecomputeConfig read_recompute(Section&, std::string_view pattern, const std::string& otherwise = "none");

}  // namespace gyr
