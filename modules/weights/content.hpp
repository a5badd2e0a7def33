// SPDX-License-Identifier: BSD-3-Clause
// Kinds of data that belong to a weight.
#pragma once

#include <compare>
#include <string>
#include <string_view>

namespace gyr {

// Data of a weight: its value, and what training stores with it. A state is kept by the rule that updates the weight
// (update_rule.hpp). (Activations only occur in dumps.)
struct Content {
  enum class Kind { weight, state, master, gradient, activation };
  Kind kind;
  std::string_view name = {};  // of a state, a literal

  static const Content weight, master, gradient, activation;
  static Content state(std::string_view name) { return {Kind::state, name}; }
  auto operator<=>(const Content&) const = default;
};
inline constexpr Content Content::weight{Content::Kind::weight}, Content::master{Content::Kind::master}, Content::gradient{Content::Kind::gradient},
    Content::activation{Content::Kind::activation};
std::string name_of(Content);  // for messages: "weight", "first moment"

}  // namespace gyr
