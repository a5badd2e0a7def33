// SPDX-License-Identifier: BSD-3-Clause
// Random operator chains for layout tests: linear layers, pointwise operators, norms, attention and scans, with
// residual branches and sums. Unit counts need not be divisible by the number of ranks. The first word of an
// operator's name is its kind (chain_executor.hpp).
#pragma once

#include <random>

#include "modules/weights/operator_chain.hpp"

namespace gyr::testing {

class RandomChain {
 public:
  explicit RandomChain(std::mt19937& random) : random_(random) {}

  // Returns a chain of about `operators` operators, including those in branches (at most two more).
  OperatorChain chain(Channels in, int operators) {
    OperatorChain chain;
    for (int taken = 0; taken < operators; in = chain.back().out) taken += add(chain, in, operators - taken);
    return chain;
  }
  Channels channels() {
    const Index units = from(1, 6);
    return from(0, 3) == 0 ? undivided(from(2, 6)) : by_units({of(units, from(1, 3))});
  }
  Index from(Index least, Index most) { return std::uniform_int_distribution<Index>(least, most)(random_); }

 private:
  static Run of(Index units, Index each) { return {units * each, units}; }
  std::string named(const char* what) { return fmt::format("{} {}", what, number_++); }

  // Adds operators to the chain and returns their number.
  int add(OperatorChain& chain, const Channels& in, int most) {
    switch (from(0, most > 2 ? 6 : 2)) {
      case 0: return linear(chain, in, channels());
      case 1: return chain.push_back(over_units(named("pointwise"), in, in)), 1;
      case 2: return norm(chain, in);
      case 3: return attention(chain, in);
      case 4: return scan(chain, in);
      case 5: return sum(chain, in, {{}, closed(in, int(from(1, most - 1)))});
      default: return sum(chain, in, {closed(in, int(from(1, most / 2))), closed(in, int(from(1, most / 2)))});
    }
  }
  int linear(OperatorChain& chain, const Channels& in, const Channels& out) {
    const std::string name = named("linear");
    chain.push_back(gemm_operator(name, in, out, {name}));
    return 1;
  }
  int norm(OperatorChain& chain, const Channels& in) {
    const std::string name = named("norm");
    chain.push_back(over_rows(name, in, in, {{name + ".weight", {in.width}}}));
    return 1;
  }
  // Adds grouped-query attention with its projections: groups of query heads share a key/value head.
  int attention(OperatorChain& chain, const Channels& in) {
    const Index kv = from(1, 3), heads = kv * from(1, 3), each = from(1, 2);
    const Channels qkv = by_units({of(heads, each), of(kv, each), of(kv, each)}), out = by_units({of(heads, each)});
    linear(chain, in, qkv);
    chain.push_back(over_tokens(named("attention"), qkv, out));
    return 2 + linear(chain, out, channels());
  }
  // Adds an SSD scan with its projections: x and dt per head, B and C per group of heads.
  int scan(OperatorChain& chain, const Channels& in) {
    const Index groups = from(1, 3), heads = groups * from(1, 3), each = from(1, 2);
    const Channels xbc = by_units({of(heads, each), of(groups, 2), of(groups, 2), of(heads, 1)}), out = by_units({of(heads, each)});
    linear(chain, in, xbc);
    const std::string name = named("scan");
    chain.push_back(over_tokens(name, xbc, out, {{name + ".weight", {heads}, {of(heads, 1)}}}));
    return 2 + linear(chain, out, channels());
  }
  // Returns a chain that ends with the channels with which it begins.
  OperatorChain closed(const Channels& in, int operators) {
    OperatorChain inner = operators > 1 ? chain(in, operators - 1) : OperatorChain();
    linear(inner, inner.empty() ? in : inner.back().out, in);
    return inner;
  }
  int sum(OperatorChain& chain, const Channels& all, std::vector<OperatorChain> branches) {
    int operators = 1;
    for (const OperatorChain& branch : branches) operators += int(branch.size());
    chain.push_back(sum_of(named("sum"), std::move(branches), all));
    return operators;
  }

  std::mt19937& random_;
  int number_ = 0;
};

}  // namespace gyr::testing
