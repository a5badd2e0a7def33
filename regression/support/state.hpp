// SPDX-License-Identifier: BSD-3-Clause
// A complete training state as a function of (salt, kind of tensor, weight name, logical element). Any rank of any
// layout can thus check its part without communication.
#pragma once

#include <cstring>

#include "regression/support/cases.hpp"
#include "regression/support/testing.hpp"
#include "src/checkpoint/header.hpp"

namespace gyr::testing {

inline double state_value(int salt, Content content, const std::string& name, Index element) {
  const Stream stream(std::uint64_t(salt), fmt::format("{} {}", name_of(content), name));
  return 2 * stream.uniform(element) - 1;
}

// Calls visit(values, content, p, of) for each tensor of an engine's training state. `values` is a Tensor1 of the
// values that this rank keeps: elements `of` of its shard.
template <class Visit>
void visit_state(Engine& engine, Visit&& visit) {
  const auto show = [&](const Parameter& p, Content content) {
    if (const Piece x = engine.tensor(p, content)) with_type(x.values, [&](const auto& typed) { visit(typed, content, p, x.of); });
  };
  for (const auto& p : engine.stage().parameters().all()) {
    show(*p, Content::weight);
    for (const Content content : engine.config().optimizer.stored_with(p->weight)) show(*p, content);
  }
}

inline void set_state(Engine& engine, int salt) {
  visit_state(engine, [&](auto x, Content content, const Parameter& p, const Span& of) {
    using S = typename decltype(x)::value_type;
    for (Index i = 0; i < of.size(); ++i) x(i) = S(0.f);
    stretches(p, of, [&](Index logical, Index local, Index count, const Held&) {
      for (Index i = 0; i < count; ++i) x(local + i) = S(Acc<S>(state_value(salt, content, p.weight.name, logical + i)));
    });
  });
}

// Counts the elements of this rank's part that are not bitwise equal to the state `salt`, and names the first one.
// Padding must be zero.
inline std::pair<Index, std::string> wrong_elements(Engine& engine, int salt) {
  std::pair<Index, std::string> wrong{0, ""};
  visit_state(engine, [&](auto x, Content content, const Parameter& p, const Span& of) {
    using S = typename decltype(x)::value_type;
    std::vector<S> expected(std::size_t(of.size()), S(0.f));
    stretches(p, of, [&](Index logical, Index local, Index count, const Held&) {
      for (Index i = 0; i < count; ++i) expected[local + i] = S(Acc<S>(state_value(salt, content, p.weight.name, logical + i)));
    });
    for (Index i = 0; i < of.size(); ++i)
      if (std::memcmp(&expected[i], &x(i), sizeof(S)) != 0 && wrong.first++ == 0)
        wrong.second = fmt::format("{} of {}, local element {}", name_of(content), p.weight.name, of.first + i);
  });
  return wrong;
}

inline void expect_state(Engine& engine, int salt, const std::string& where = "") {
  const auto [count, first] = wrong_elements(engine, salt);
  EXPECT_EQ(count, 0) << where << ": first " << first;
}

}  // namespace gyr::testing
