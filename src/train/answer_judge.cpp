// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/answer_judge.hpp"

#include <cmath>
#include <numeric>

#include "src/config/placed_models.hpp"
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
  for (const RewardConfig& rule : rules) texts_.push_back(rule.type == RewardType::model ? RewardTexts::of(run, rule) : std::nullopt);
  const bool decodes = std::any_of(texts_.begin(), texts_.end(), [](const auto& texts) { return texts.has_value(); });
  if (decodes || std::any_of(rules.begin(), rules.end(), needs_text))
    tokenizer_ = std::make_unique<const Tokenizer>(Tokenizer::load(run.data.tokenizer));
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

// The texts of a reward model as rollouts, with their last token in the place of the answer.
Rollouts AnswerJudge::texts_of(const RewardTexts& format, const Rollouts& rollouts) const {
  std::deque<Json> fields;
  std::vector<Answer> answers = answers_of(rollouts, fields);
  Rollouts texts;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Rollout& r = rollouts.all[i];
    const std::vector<Token> prompt = known(*tokenizer_, std::span(r.tokens).first(std::size_t(r.begin)));
    answers[i].prompt_text = tokenizer_->decode(prompt, Tokenizer::Shown::without_specials);
    Rollout& text = texts.all.emplace_back(Rollout{.prompt = r.prompt, .sample = r.sample, .tokens = format.tokens(answers[i])});
    text.begin = Index(text.tokens.size()) - 1;
  }
  return texts;
}

// Values of texts by the model of a rule, each at its last token, on every rank.
std::vector<double> AnswerJudge::values_of(const RewardConfig& rule, const Rollouts& texts) {
  const auto model = std::find_if(run_.models.begin(), run_.models.end(), [&](const FurtherModel& m) { return m.name == rule.model; });
  const Index window = window_of(*model, run_);
  for (const Rollout& r : texts.all)
    require(Index(r.tokens.size()) <= window, Exit::data,
            "reward `{}`, rollout {}/{}: its text has {} tokens, and the windows of models.{} have {}; set models.{}.seq_length to {} or more",
            rule.name, r.prompt, r.sample, r.tokens.size(), rule.model, window, rule.model, r.tokens.size());
  std::vector<Index> members(texts.all.size());
  std::iota(members.begin(), members.end(), 0);
  const WindowScores windows(texts, {packed(texts, members, window)}, scoring_multiple(run_, grid_.layout()));
  const std::vector<double> of_rows = rows_of_(rule.model, windows.samples());
  std::vector<double> values(texts.all.size());
  windows.visit([&](Index i, Index t, std::size_t row) {
    if (t + 1 == texts.all[std::size_t(i)].length()) values[std::size_t(i)] = of_rows[row + 1];  // at the last token
  });
  return values;
}

// Values of all answers by the reward model of each rule, on every rank; empty for other rules.
std::vector<std::vector<double>> AnswerJudge::values_of_models(const Rollouts& rollouts) {
  const std::vector<RewardConfig>& rules = config().rewards;
  std::vector<std::vector<double>> all(rules.size());
  for (std::size_t k = 0; k < rules.size(); ++k) {
    if (rules[k].type != RewardType::model) continue;
    Rollouts texts;
    collective_check(grid_.world(), [&] {
      if (texts_[k]) texts = texts_of(*texts_[k], rollouts);
    });
    all[k] = values_of(rules[k], texts_[k] ? texts : rollouts);
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
    for (std::size_t k = 0; k < each; ++k)
      for (std::size_t i = 0; i < of_models[k].size(); ++i) answers[i].values_of_models[rules[k].name] = of_models[k][i];
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
