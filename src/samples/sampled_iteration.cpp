// SPDX-License-Identifier: BSD-3-Clause
#include "src/samples/sampled_iteration.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>

#include "kernels/device/random.hpp"
#include "src/policy/rewards/rules.hpp"

namespace gyr {

namespace {

using Positions = std::vector<std::size_t>;

std::span<const Token> answer_tokens(const Rollout& r) { return std::span(r.tokens).subspan(std::size_t(r.begin)); }

std::vector<AnswerFacts> facts_of(const Rollouts& rollouts) {
  RewardConfig repetition;
  repetition.type = RewardType::repetition, repetition.ngram = repeated_ngram;
  const auto rule = repetition_reward(repetition);
  std::vector<AnswerFacts> all;
  for (const Rollout& r : rollouts.all) {
    all.push_back({r.prompt, r.sample, r.length(), r.ended(), r.reward, r.rewards});
    Answer answer;
    answer.tokens = answer_tokens(r);
    all.back().repeated = -rule->of({answer}).front().value_or(0);
  }
  for (std::size_t first = 0; first < all.size(); first += std::size_t(rollouts.group)) {
    std::map<std::vector<Token>, Index> counts;
    const auto key = [&](std::size_t i) { return std::vector<Token>(answer_tokens(rollouts.all[i]).begin(), answer_tokens(rollouts.all[i]).end()); };
    const std::size_t end = first + std::size_t(rollouts.group);
    for (std::size_t i = first; i < end; ++i) ++counts[key(i)];
    for (std::size_t i = first; i < end; ++i) all[i].copies = counts[key(i)];
  }
  return all;
}

// The first positions of `order`: at first one per prompt, and then any if there are too few prompts.
Positions first_of(const Positions& order, const std::vector<AnswerFacts>& facts) {
  Positions chosen;
  std::set<std::int64_t> prompts;
  for (const std::size_t i : order)
    if (chosen.size() < shown_each && prompts.insert(facts[i].prompt).second) chosen.push_back(i);
  for (const std::size_t i : order)
    if (chosen.size() < shown_each && std::find(chosen.begin(), chosen.end(), i) == chosen.end()) chosen.push_back(i);
  return chosen;
}

// Positions of the answers that have a reward, from the highest to the lowest. Equal ones are in their own order.
Positions by_reward(const std::vector<AnswerFacts>& facts) {
  Positions order;
  for (std::size_t i = 0; i < facts.size(); ++i)
    if (facts[i].reward) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return *facts[a].reward > *facts[b].reward; });
  return order;
}

void choose_extremes(SampledIteration& s, const Positions& by_reward) {
  const auto position = [&](const auto& found) { return std::size_t(found - s.facts.begin()); };
  const auto length = [](const AnswerFacts& f) { return f.length; };
  s.longest = position(std::ranges::max_element(s.facts, {}, length));
  s.shortest = position(std::ranges::min_element(s.facts, {}, length));
  s.most_repeated = position(std::ranges::max_element(s.facts, {}, &AnswerFacts::repeated));
  s.most_copied = position(std::ranges::max_element(s.facts, {}, &AnswerFacts::copies));
  const Positions top(by_reward.begin(), by_reward.begin() + std::ptrdiff_t((by_reward.size() + 3) / 4));
  for (std::size_t k = 0; k < s.reward_names.size(); ++k) {
    const auto value = [&](std::size_t i) { return s.facts[i].rewards[k].value_or(INFINITY); };
    s.lowest.push_back(top.empty() ? s.longest : *std::ranges::min_element(top, {}, value));
  }
}

}  // namespace

double SampledIteration::repeated() const {
  double sum = 0;
  for (const AnswerFacts& f : facts) sum += f.repeated;
  return facts.empty() ? 0 : sum / double(facts.size());
}

// Each set of n identical answers has n - 1 that equal an earlier one.
double SampledIteration::duplicated() const {
  double sum = 0;
  for (const AnswerFacts& f : facts) sum += 1 - 1 / double(f.copies);
  return facts.empty() ? 0 : sum / double(facts.size());
}

SampledIteration sampled(const Rollouts& rollouts, const AdvantageRules& rules, std::uint64_t seed) {
  SampledIteration s{.iteration = rollouts.iteration, .version = rollouts.version, .group = rollouts.group, .reward_names = rollouts.reward_names};
  s.facts = facts_of(rollouts);
  if (s.facts.empty()) return s;
  const Positions order = by_reward(s.facts);
  s.best = first_of(order, s.facts);
  s.worst = first_of({order.rbegin(), order.rend()}, s.facts);
  const Stream stream(seed, fmt::format("page of samples {}", rollouts.iteration));
  Positions drawn(s.facts.size());
  std::iota(drawn.begin(), drawn.end(), std::size_t(0));
  std::ranges::stable_sort(drawn, {}, [&](std::size_t i) { return stream.uniform(Index(i)); });
  drawn.resize(std::min(drawn.size(), shown_each));
  s.drawn = drawn;
  choose_extremes(s, order);
  const auto advantages = advantages_of(rollouts, rules);
  const auto keep = [&](std::size_t i) { s.kept.try_emplace(i, KeptAnswer{rollouts.all[i], advantages[i]}); };
  for (const Positions* some : {&s.best, &s.worst, &s.drawn, &s.lowest}) std::ranges::for_each(*some, keep);
  for (const std::size_t i : {s.longest, s.shortest, s.most_repeated, s.most_copied}) keep(i);
  return s;
}

}  // namespace gyr
