// SPDX-License-Identifier: BSD-3-Clause
// What layers keep of their forward for their backward, and what they compute again instead: keys activation.*. Bits are the same.
//   none               everything is kept
//   selective          what a pass over numbers makes is made again: norms, convolutions, gates
//   attention_output   products too; attention and scans are not run twice (LightSeq's cut)
//   full               all but what enters each layer
#pragma once

#include <map>
#include <optional>

#include "modules/pass/frame.hpp"
#include "modules/settings/settings.hpp"

namespace gyr {

// The most effort that is spent again; nothing: everything is kept.
using Recompute = std::optional<RecomputeCost>;

inline constexpr const char* recompute_names[] = {"none", "selective", "attention_output", "full"};
Recompute recompute_of(std::string_view name);  // one of these

struct RecomputeConfig {
  Recompute all = {};
  std::map<char, Recompute> by_type = {};  // of layer types that do otherwise

  Recompute of(char symbol) const {
    const auto found = by_type.find(symbol);
    return found == by_type.end() ? all : found->second;
  }
  bool operator==(const RecomputeConfig&) const = default;
};

// `otherwise`: what activation.recompute is where the deck does not say it. Exit::config where a type is not in the model's pattern.
RecomputeConfig read_recompute(Section&, std::string_view pattern, const std::string& otherwise = "none");

}  // namespace gyr
