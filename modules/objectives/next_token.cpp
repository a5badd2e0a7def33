// SPDX-License-Identifier: BSD-3-Clause
// Objective next_token (causal language modelling): final norm, output matrix and cross-entropy.
#include "modules/objectives/objective.hpp"
#include "modules/objectives/vocabulary_head.hpp"

namespace gyr {

namespace {

template <class T>
using NextTokenHead = FrontedHead<T, FinalNorm>;

class NextToken final : public Objective {
 public:
  const char* name() const override { return "next_token"; }
  bool writes_next_token() const override { return true; }
  bool repeats() const override { return true; }
  Labelled label(const SampleView& s) const override { return {{s.tokens.begin(), s.tokens.end() - 1}, next_tokens(s.tokens, s.learned)}; }
  std::unique_ptr<Head> head(const ModelConfig& c, Parameter* table, Parameters& parameters) const override {
    return make_typed<Head, NextTokenHead>(parameters.dtype(), c, output_of_tokens(c, table), parameters);
  }
  double flops(const ModelConfig& c) const override { return 2.0 * double(c.hidden_size) * double(c.vocab_size); }
};

std::shared_ptr<const Objective> read_next_token(Section&, const ModelConfig&, const Objective&) { return next_token(); }

const RegisteredObjective registered_next_token({"next_token", "next-token prediction, causal language modelling", read_next_token});

}  // namespace

std::shared_ptr<const Objective> next_token() {
  static const auto objective = std::make_shared<const NextToken>();
  return objective;
}

std::vector<Token> next_tokens(std::span<const Token> tokens, std::span<const std::uint8_t> learned) {
  std::vector<Token> labels;
  for (std::size_t t = 1; t < tokens.size(); ++t) labels.push_back(learned[t] ? tokens[t] : ignored_label);
  return labels;
}

}  // namespace gyr
