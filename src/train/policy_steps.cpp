// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/policy_steps.hpp"

#include <cmath>

#include "src/base/stopwatch.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/policy/iteration_figures.hpp"
#include "src/policy/minibatches.hpp"
#include "src/policy/rollout_file.hpp"
#include "src/tokenizer/tokenizer.hpp"
#include "src/train/policy_generation.hpp"

namespace gyr {

namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

// Samples of several minibatches, one after the other, each filled up with empty windows to a multiple of `multiple`.
struct Windows {
  const Rollouts& rollouts;
  std::vector<std::pair<const PackedMinibatch*, Index>> all = {};

  void add(const PackedMinibatch& minibatch) {
    for (Index w = 0; w < minibatch.size(); ++w) all.emplace_back(&minibatch, w);
  }
  void fill(const PackedMinibatch& any, Index multiple) {
    while (Index(all.size()) % multiple != 0) all.emplace_back(&any, any.size());
  }
  Sample operator()(Index number) const {
    const auto& [minibatch, window] = all[std::size_t(number)];
    return scoring_sample(rollouts, *minibatch, window);
  }
};

}  // namespace

// The answers of an iteration, and the minibatches that its steps take.
struct PolicySteps::Iteration {
  Rollouts rollouts;
  std::vector<PackedMinibatch> minibatches;
  std::vector<std::vector<double>> advantages;

  Iteration(Rollouts written, const PolicyConfig& c, Index window) : rollouts(std::move(written)) {
    for (const auto& members : draw_minibatches(c.seed, rollouts.iteration, Index(rollouts.all.size()), c.minibatches))
      minibatches.push_back(packed(rollouts, members, window));
  }
};

PolicySteps::PolicySteps(const RunParts& parts, const Prompts& prompts, RunLog* log)
    : parts_(parts), prompts_(prompts), log_(log), ends_(answer_ends(parts.run)) {
  const std::vector<RewardConfig>& rewards = config().rewards;
  if (std::any_of(rewards.begin(), rewards.end(), needs_text))
    tokenizer_ = std::make_shared<const Tokenizer>(Tokenizer::load(parts.run.data.tokenizer));
  collective_check(parts.grid.world(), [&] {
    if (!parts_.lead()) return;
    for (const RewardConfig& reward : rewards) rewards_.push_back(make_reward(reward, parts_.run.output));
  });
  if (log_ && ends_.empty())
    log_->print_line(fmt::format("no end token is known: every answer has {} tokens; name one in rl.generate.end_tokens", config().max_new_tokens));
}

PolicySteps::~PolicySteps() = default;

StepSamples PolicySteps::samples(Index number, const CheckpointHeader& at, const std::vector<Span>&) {
  const PolicyConfig& c = config();
  const Index of_iteration = c.steps_of_iteration(), iteration = (number - 1) / of_iteration, within = (number - 1) % of_iteration;
  if (!current_ || current_->rollouts.iteration != iteration) current_ = within == 0 ? generated(iteration, at) : stored(iteration);
  const std::vector<Index> order = draw_order(c.seed, iteration, within / c.minibatches, c.minibatches);
  const PackedMinibatch& minibatch = current_->minibatches[std::size_t(order[std::size_t(within % c.minibatches)])];
  const Index together = parts_.grid.layout().size(Axis::data) * parts_.run.train.micro_batch_size;
  const Index windows = (minibatch.size() + together - 1) / together * together, first = at.samples;
  auto values = std::make_shared<const MinibatchValues>(current_->rollouts, current_->advantages, minibatch, c);
  return {[values, first](Index sample) { return values->sample(sample - first); }, {first, first + windows}};
}

std::unique_ptr<PolicySteps::Iteration> PolicySteps::generated(std::int64_t iteration, const CheckpointHeader& at) {
  double seconds = 0;
  std::unique_ptr<Iteration> made;
  {
    const Stopwatch watch(seconds);
    Rollouts rollouts = written(iteration, at);
    judge(rollouts);
    made = std::make_unique<Iteration>(std::move(rollouts), config(), parts_.run.train.seq_length);
    score(*made);
  }
  made->advantages = advantages_of(made->rollouts, config().advantage);
  collective_check(parts_.grid.world(), [&] {
    if (!parts_.lead()) return;
    write_rollouts(rollout_path(parts_.run.output, iteration), made->rollouts);
    if (log_) log_->iteration(is_logged(iteration), figures_of(made->rollouts, made->advantages, config().iterations, seconds));
  });
  return made;
}

// Iterations are printed as often as steps (train.log_every).
bool PolicySteps::is_logged(std::int64_t iteration) const {
  const Index steps = config().steps_of_iteration(), every = parts_.run.train.log_every;
  return iteration == 0 || (iteration + 1) * steps / every > iteration * steps / every;
}

// The answers of an iteration that an earlier attempt began.
std::unique_ptr<PolicySteps::Iteration> PolicySteps::stored(std::int64_t iteration) {
  const std::filesystem::path path = rollout_path(parts_.run.output, iteration);
  const Index first_step = iteration * config().steps_of_iteration();
  std::unique_ptr<Iteration> made;
  collective_check(parts_.grid.world(), [&] {
    std::error_code no;
    require(
        std::filesystem::exists(path, no), Exit::missing,
        "{}: does not exist, and a run that resumes within an iteration needs its answers; restore the file, or remove the checkpoints after step "
        "{}, at which the iteration begins",
        path.string(), first_step);
    made = std::make_unique<Iteration>(read_rollouts(path), config(), parts_.run.train.seq_length);
    require(made->rollouts.iteration == iteration && made->rollouts.version == first_step &&
                Index(made->rollouts.all.size()) == config().rollouts() && made->rollouts.group == config().group,
            Exit::data,
            "{}: it has {} answers of iteration {}, and the run needs {} of iteration {}; resume from a checkpoint at the end of an iteration",
            path.string(), made->rollouts.all.size(), made->rollouts.iteration, config().rollouts(), iteration);
  });
  made->advantages = advantages_of(made->rollouts, config().advantage);
  return made;
}

std::vector<Request> PolicySteps::requests(std::int64_t iteration) const {
  std::vector<Request> all;
  for (Index i = 0; i < config().prompts; ++i) {
    const std::int64_t number = iteration * config().prompts + i;
    all.push_back({number, prompts_.tokens(prompts_.line_of(number, config().seed)), config().group});
  }
  return all;
}

Rollouts PolicySteps::written(std::int64_t iteration, const CheckpointHeader& at) {
  parts_.watch.progress_record().phase("generate");
  const PolicyConfig& c = config();
  const std::vector<Request> asked = requests(iteration);
  // The head of the model divides its logits by the temperature.
  const Sampling sampling{.seed = c.seed, .tokens = c.max_new_tokens, .ends = ends_, .exact = c.exact, .rollouts = true};
  Rollouts rollouts{.iteration = iteration, .version = at.step, .group = c.group};
  for (const GeneratedText& text : parts_.engine.generate(asked, sampling)) {
    Rollout r{.prompt = text.id, .sample = text.sample, .tokens = asked[std::size_t(text.id - asked.front().id)].prompt};
    r.begin = Index(r.tokens.size());
    r.tokens.insert(r.tokens.end(), text.tokens.begin(), text.tokens.end());
    r.end = text.end, r.said = text.log_probs;
    rollouts.all.push_back(std::move(r));
  }
  return rollouts;
}

std::vector<Answer> PolicySteps::answers_of(const Rollouts& rollouts, std::deque<Json>& fields) const {
  std::vector<Answer> answers;
  for (const Rollout& r : rollouts.all) {
    const std::int64_t line = prompts_.line_of(r.prompt, config().seed);
    Answer& a = answers.emplace_back();
    a.prompt = r.prompt, a.sample = r.sample, a.ended = r.ended();
    a.tokens = std::span(r.tokens).subspan(std::size_t(r.begin));
    if (a.ended && r.end == TextEnd::end) a.tokens = a.tokens.first(a.tokens.size() - 1);
    a.step = rollouts.version;
    if (tokenizer_) {
      a.text = tokenizer_->decode(a.tokens, Tokenizer::Shown::without_specials);
      a.prompt_text = tokenizer_->decode(std::span(r.tokens).first(std::size_t(r.begin)));
    }
    a.fields = &fields.emplace_back(prompts_.fields(line)), a.place = prompts_.place(line);
  }
  return answers;
}

// Values that the first rank computes, on every rank.
std::vector<double> PolicySteps::from_first_rank(std::size_t count, const std::function<std::vector<double>()>& compute) {
  std::vector<double> values(count, 0);
  collective_check(parts_.grid.world(), [&] {
    if (parts_.lead()) values = compute();
  });
  values = parts_.grid.world().gather(values);  // the first rank's come first
  values.resize(count);
  return values;
}

// Rewards of all answers.
void PolicySteps::judge(Rollouts& rollouts) {
  parts_.watch.progress_record().phase("reward");
  const std::vector<RewardConfig>& rules = config().rewards;
  const std::size_t each = rules.size();
  const std::vector<double> all = from_first_rank(each * rollouts.all.size(), [&] {
    std::vector<double> values(each * rollouts.all.size());
    std::deque<Json> fields;
    const std::vector<Answer> answers = answers_of(rollouts, fields);
    for (std::size_t k = 0; k < each; ++k) {
      const std::vector<std::optional<double>> of_rule = rewards_[k]->of(answers);
      for (std::size_t i = 0; i < answers.size(); ++i) values[i * each + k] = of_rule[i].value_or(none);
    }
    return values;
  });
  for (const RewardConfig& rule : rules) rollouts.reward_names.push_back(rule.name);
  for (std::size_t i = 0; i < rollouts.all.size(); ++i) {
    Rollout& r = rollouts.all[i];
    double sum = 0;
    for (std::size_t k = 0; k < each; ++k) {
      const double value = all[i * each + k];
      r.rewards.push_back(std::isnan(value) ? std::nullopt : std::optional(value));
      sum += rules[k].weight * value;
    }
    if (!std::isnan(sum)) r.reward = sum;
  }
}

// Log-probabilities of the answers under the policy before the update, and under the reference model, as far as the run needs them.
void PolicySteps::score(Iteration& iteration) {
  parts_.watch.progress_record().phase("score");
  Windows windows{iteration.rollouts};
  for (const PackedMinibatch& minibatch : iteration.minibatches) windows.add(minibatch);
  const std::size_t used = windows.all.size();
  windows.fill(iteration.minibatches.front(), scoring_multiple(parts_.run, parts_.grid.layout()));
  const StepSamples samples{[&](Index number) { return windows(number); }, {0, Index(windows.all.size())}};
  const auto store = [&](const std::vector<double>& log_probs, std::vector<double> Rollout::*to) {
    for (std::size_t w = 0; w < used; ++w) {
      const auto& [minibatch, window] = windows.all[w];
      visit_answer_rows(iteration.rollouts, minibatch->windows[std::size_t(window)], [&](Index i, Index, Index row) {
        (iteration.rollouts.all[std::size_t(i)].*to).push_back(log_probs[w * std::size_t(minibatch->length) + std::size_t(row)]);
      });
    }
  };
  if (config().scores_old()) store(parts_.engine.log_probs(samples), &Rollout::old);
  else if (config().old == OldLogProbs::said)
    for (Rollout& r : iteration.rollouts.all) r.old = r.said;
  if (config().reads_reference()) store(parts_.engine.log_probs_of("reference", samples), &Rollout::reference);
}

std::unique_ptr<StepSource> step_source(const RunParts& parts, const RunData& data, RunLog* log) {
  if (data.prompts) return std::make_unique<PolicySteps>(parts, *data.prompts, log);
  return std::make_unique<CorpusSteps>(parts.run, *data.training);
}

}  // namespace gyr
