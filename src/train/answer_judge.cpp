// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/answer_judge.hpp"

#include <cmath>
#include <numeric>

#include "src/parallel/collective_check.hpp"
#include "src/policy/iteration_state.hpp"
#include "src/train/policy_generation.hpp"

namespace gyr {

namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

std::vector<Token> known(const Tokenizer& tokenizer, std::span<const Token> tokens) {
  std::vector<Token> all(tokens.begin(), tokens.end());
  std::erase_if(all, [&](Token token) { return !tokenizer.has(token); });
  return all;
}

}  // namespace

AnswerJudge::AnswerJudge(const RunConfig& run, const Prompts& prompts, Grid& grid, RowsOf rows_of)
    : run_(run), prompts_(prompts), grid_(grid), rows_of_(std::move(rows_of)) {
  const std::vector<RewardConfig>& rules = config().rewards;
  if (std::any_of(rules.begin(), rules.end(), needs_text)) tokenizer_ = std::make_unique<const Tokenizer>(Tokenizer::load(run.data.tokenizer));
  collective_check(grid.world(), [&] {
    if (grid_.position() > 0) return;
    for (const RewardConfig& rule : rules) rules_.push_back(make_reward(rule, run_.output));
  });
}

AnswerJudge::~AnswerJudge() = default;

std::optional<std::string> AnswerJudge::answer_text(std::span<const Token> tokens) const {
  if (!tokenizer_) return {};
  return tokenizer_->decode(known(*tokenizer_, tokens), Tokenizer::Shown::without_specials);
}

std::optional<std::string> AnswerJudge::prompt_text(std::span<const Token> tokens) const {
  if (!tokenizer_) return {};
  return tokenizer_->decode(known(*tokenizer_, tokens));
}

// Values that the first rank computes, on every rank.
std::vector<double> AnswerJudge::from_first_rank(std::size_t count, const std::function<std::vector<double>()>& compute) {
  std::vector<double> values(count, 0);
  collective_check(grid_.world(), [&] {
    if (grid_.position() == 0) values = compute();
  });
  values = grid_.world().gather(values);  // the first rank's come first
  values.resize(count);
  return values;
}

std::vector<Answer> AnswerJudge::answers_of(const Rollouts& rollouts, std::deque<Json>& fields) const {
  std::vector<Answer> answers;
  for (const Rollout& r : rollouts.all) {
    const std::int64_t line = prompts_.line_of(r.prompt, config().seed);
    Answer& a = answers.emplace_back();
    a.prompt = r.prompt, a.sample = r.sample, a.ended = r.ended();
    a.tokens = std::span(r.tokens).subspan(std::size_t(r.begin));
    if (a.ended && r.end == TextEnd::end) a.tokens = a.tokens.first(a.tokens.size() - 1);
    a.step = rollouts.version;
    a.text = answer_text(a.tokens).value_or(""), a.prompt_text = prompt_text(std::span(r.tokens).first(std::size_t(r.begin))).value_or("");
    a.fields = &fields.emplace_back(prompts_.fields(line)), a.place = prompts_.place(line);
  }
  return answers;
}

// Values of all answers by each reward model (PolicySettings::reward_models), on every rank.
std::vector<std::vector<double>> AnswerJudge::values_of_models(const Rollouts& rollouts) {
  const std::vector<std::string>& names = config().loss.reward_models;
  std::vector<std::vector<double>> all(names.size());
  if (names.empty()) return all;
  std::vector<Index> members(rollouts.all.size());
  std::iota(members.begin(), members.end(), 0);
  const PackedMinibatch packing = packed(rollouts, members, run_.train.seq_length);
  const WindowScores windows(rollouts, {packing}, scoring_multiple(run_, grid_.layout()));
  for (std::size_t m = 0; m < names.size(); ++m) {
    const std::vector<double> values = rows_of_(names[m], windows.samples());
    all[m].resize(rollouts.all.size());
    windows.visit([&](Index i, Index t, std::size_t row) {
      if (t + 1 == rollouts.all[std::size_t(i)].length()) all[m][std::size_t(i)] = values[row + 1];  // at the last token
    });
  }
  return all;
}

// Rewards of all answers.
void AnswerJudge::reward(Rollouts& rollouts) {
  const std::vector<RewardConfig>& rules = config().rewards;
  const std::size_t each = rules.size();
  const std::vector<std::vector<double>> of_models = values_of_models(rollouts);
  const std::vector<double> all = from_first_rank(each * rollouts.all.size(), [&] {
    std::vector<double> values(each * rollouts.all.size());
    std::deque<Json> fields;
    std::vector<Answer> answers = answers_of(rollouts, fields);
    for (std::size_t m = 0; m < of_models.size(); ++m)
      for (std::size_t i = 0; i < answers.size(); ++i) answers[i].values_of_models[config().loss.reward_models[m]] = of_models[m][i];
    for (std::size_t k = 0; k < each; ++k) {
      const std::vector<std::optional<double>> of_rule = rules_[k]->of(answers);
      for (std::size_t i = 0; i < answers.size(); ++i) values[i * each + k] = of_rule[i].value_or(none);
    }
    return values;
  });
  for (const RewardConfig& rule : rules) rollouts.reward_names.push_back(rule.name);
  for (std::size_t i = 0; i < rollouts.all.size(); ++i) {
    Rollout& r = rollouts.all[i];
    double sum = -length_penalty(r.length(), config());
    for (std::size_t k = 0; k < each; ++k) {
      const double value = all[i * each + k];
      r.rewards.push_back(std::isnan(value) ? std::nullopt : std::optional(value));
      sum += rules[k].weight * value;
    }
    if (!std::isnan(sum)) r.reward = sum;
  }
}

}  // namespace gyr
