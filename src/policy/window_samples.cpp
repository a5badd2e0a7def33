// SPDX-License-Identifier: BSD-3-Clause
#include "src/policy/window_samples.hpp"

#include <algorithm>

#include "src/policy/minibatches.hpp"

namespace gyr {

PackedMinibatch packed(const Rollouts& rollouts, const std::vector<Index>& members, Index length) {
  std::vector<Index> lengths;
  for (const Index i : members) lengths.push_back(Index(rollouts.all[std::size_t(i)].tokens.size()));
  PackedMinibatch minibatch{length, first_fit(lengths, length)};
  for (std::vector<Index>& window : minibatch.windows)
    for (Index& item : window) item = members[std::size_t(item)];
  return minibatch;
}

Sample scoring_sample(const Rollouts& rollouts, const PackedMinibatch& minibatch, Index window) {
  const auto size = std::size_t(minibatch.length) + 1;
  Sample s;
  s.tokens.reserve(size), s.positions.reserve(size);
  if (window < minibatch.size())
    for (const Index i : minibatch.windows[std::size_t(window)]) {
      const std::vector<Token>& tokens = rollouts.all[std::size_t(i)].tokens;
      s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.end());
      for (std::size_t t = 0; t < tokens.size(); ++t) s.positions.push_back(std::int32_t(t));
    }
  for (std::int32_t t = 0; s.positions.size() < size; ++t) s.positions.push_back(t);  // padding is a document of its own
  s.tokens.resize(size, 0), s.learned.assign(size, 0);
  if (window < minibatch.size())
    visit_answer_rows(rollouts, minibatch.windows[std::size_t(window)], [&](Index, Index, Index row) { s.learned[std::size_t(row) + 1] = 1; });
  return s;
}

namespace {

Index tokens_with_weight(const std::vector<double>& weights) { return Index(weights.size()) - std::count(weights.begin(), weights.end(), 0.0); }

}  // namespace

Targets targets_of(const Rollouts& rollouts, const PolicyConfig& c) {
  return {advantages_of(rollouts, c.advantage), c.has_critic() ? returns_of(rollouts, c.advantage) : std::vector<std::vector<double>>()};
}

MinibatchValues::MinibatchValues(const Rollouts& rollouts, const Targets& targets, const PackedMinibatch& minibatch, const PolicyConfig& c)
    : rollouts_(rollouts), targets_(targets), minibatch_(minibatch), c_(c) {
  for (const std::vector<Index>& window : minibatch.windows)
    for (const Index i : window)
      if (const Rollout& r = rollouts.all[std::size_t(i)]; counts(r)) {
        const std::vector<double>& weights = corrections_[i] = corrections_of(r, c.correction);
        const Index kept = tokens_with_weight(weights);
        answers_ += kept > 0, tokens_ += kept, all_tokens_ += r.length();
      }
}

double MinibatchValues::weight(Index tokens) const {
  switch (c_.aggregate) {
    case LossAggregate::token: return 1 / double(tokens_);
    case LossAggregate::sequence: return 1 / (double(answers_) * double(tokens));
    case LossAggregate::constant: return 1 / (double(answers_) * double(c_.max_new_tokens));
  }
  return 0;
}

Sample MinibatchValues::sample(Index window) const {
  using namespace policy_field;
  Sample s = scoring_sample(rollouts_, minibatch_, window);
  if (window >= minibatch_.size()) return s;
  const auto rows = std::size_t(minibatch_.length);
  s.values[answer].assign(rows, -1);
  for (const auto& name : {old, reference, advantage, correction, weight_in_loss, kl, policy_field::entropy, share}) s.values[name].assign(rows, 0);
  Index number = -1;
  visit_answer_rows(rollouts_, minibatch_.windows[std::size_t(window)], [&](Index i, Index t, Index row) {
    const Rollout& r = rollouts_.all[std::size_t(i)];
    if (t == 0) ++number, s.values[inverse_length].push_back(1 / double(r.length()));
    const auto at = std::size_t(row), token = std::size_t(t);
    s.values[answer][at] = Token(number);
    s.values[old][at] = (r.old.empty() ? r.said : r.old)[token];
    if (!r.reference.empty()) s.values[reference][at] = r.reference[token];
    if (!counts(r)) return;
    const std::vector<double>& weights = corrections_.at(i);
    if (weights[token] == 0) return;
    const double g = weight(tokens_with_weight(weights)), of_all = 1 / double(tokens_);
    s.values[advantage][at] = targets_.advantages[std::size_t(i)][token];
    s.values[correction][at] = weights[token];
    s.values[weight_in_loss][at] = g;
    s.values[kl][at] = c_.kl_in_loss * g;
    s.values[policy_field::entropy][at] = c_.entropy_coefficient * of_all;
    s.values[share][at] = of_all;
  });
  return s;
}

Sample MinibatchValues::critic_sample(Index window) const {
  Sample s = scoring_sample(rollouts_, minibatch_, window);
  if (window >= minibatch_.size()) return s;
  for (const auto& name : {value_field::value, value_field::returns, value_field::weight}) s.values[name].assign(std::size_t(minibatch_.length), 0);
  visit_answer_rows(rollouts_, minibatch_.windows[std::size_t(window)], [&](Index i, Index t, Index row) {
    const Rollout& answer = rollouts_.all[std::size_t(i)];
    if (!counts(answer)) return;
    s.values[value_field::value][std::size_t(row)] = answer.values[std::size_t(t)];
    s.values[value_field::returns][std::size_t(row)] = targets_.returns[std::size_t(i)][std::size_t(t)];
    s.values[value_field::weight][std::size_t(row)] = 1 / double(all_tokens_);
  });
  return s;
}

}  // namespace gyr
